use huddle_engine::{Cause, Mechanism, Observer, Setup, simulate_with};
struct Show(bool);
impl Observer for Show {
    fn migrate(&mut self, now: u64, task: u32, from: usize, to: usize, cause: Cause) {
        if self.0 {
            println!("{now} task {task} {from}->{to} {cause:?}");
        }
    }
}
use huddle_machine::{CpuSet, Distance, Machine};
use huddle_policy::Policy;
use huddle_workload::Workload;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let machine = Machine::load(&args[1]).unwrap();
    let workload = Workload::parse(&args[2]).unwrap();
    let load: u32 = args[3].parse().unwrap();
    let cpus = CpuSet::parse_list(&args[5]).unwrap();
    let runs: u64 = args[6].parse().unwrap();
    for policy in args[4].split(',') {
        let policy = Policy::load(policy).unwrap();
        let kernel = huddle_domains::Kernel::load(&policy.kernel).unwrap();
        let tree = huddle_domains::build(&machine.topology, &kernel);
        let plan = policy.compile(&tree, &machine.topology);
        let program = workload.program(load).unwrap();
        for seed in 0..runs {
            let t = std::time::Instant::now();
            let r = simulate_with(
                &Setup {
                    machine: &machine,
                    tree: &tree,
                    kernel: &kernel,
                    plan: &plan,
                    program: &program,
                    cpus: &cpus,
                    pins: &[],
                    seed,
                    limit_ns: 600_000_000_000,
                },
                &mut Show(args.len() > 8),
            );
            let el = t.elapsed().as_secs_f64();
            match r {
                Err(e) => println!("{} seed {seed}: {e}", policy.name),
                Ok(r) => {
                    let per = r.measured_ns as f64 / r.messages.max(1) as f64;
                    println!(
                        "{:28} seed {seed} elapsed {:9.3} ms  pub {:7.3} s util {:5.1}% msgs {} ({:.2} Mmsg/s host, {:.1} ev/msg) purity {:?} wide {:.3} wakes/msg {:.3} sw/msg {:.3}",
                        policy.name,
                        r.measured_ns as f64 / 1e6,
                        per * 400.0 * f64::from(load) * 100_000.0 / 1e9,
                        100.0 * r.utilisation(),
                        r.messages,
                        r.messages as f64 / el / 1e6,
                        r.events as f64 / r.messages.max(1) as f64,
                        r.purity,
                        r.wakes.wide as f64 / r.wakes.total().max(1) as f64,
                        r.wakes.total() as f64 / r.messages.max(1) as f64,
                        r.switches as f64 / r.messages.max(1) as f64
                    );
                    if args.len() > 7 {
                        let busy: u64 = r.cpu_ns[1..].iter().sum();
                        for m in Mechanism::ALL {
                            print!(
                                " {}={:.1}%",
                                m.name(),
                                100.0 * r.cpu_ns[m as usize] as f64
                                    / if m == Mechanism::Idle { busy + r.cpu_ns[0] } else { busy } as f64
                            );
                        }
                        println!(" | busy us/msg {:.3}", busy as f64 / 1e3 / r.messages.max(1) as f64);
                        for (i, s) in plan.steps().iter().enumerate() {
                            print!(" {}:{:?}", s.kind(), r.wakes.placed[i].iter().sum::<u64>());
                        }
                        println!(
                            " unplaced {} stacked {} collided {} exhausted {} examined/wake {:.2}",
                            r.wakes.unplaced,
                            r.wakes.stacked,
                            r.wakes.collided,
                            r.wakes.exhausted,
                            r.wakes.examined as f64 / r.wakes.total().max(1) as f64
                        );
                        print!(" waker->chosen:");
                        for d in Distance::ALL {
                            print!(" {}={}", d.name(), r.wakes.waker_to_chosen[d as usize]);
                        }
                        println!("\n migrations {:?}", r.migrations);
                        let f: Vec<u64> = r.finished_ns.iter().map(|x| x / 1_000_000).collect();
                        if f.len() < 30 {
                            println!(" finished ms {f:?}");
                        }
                    }
                }
            }
        }
    }
}

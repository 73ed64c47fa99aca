//! Per-entity load tracking, the integer arithmetic of `kernel/sched/pelt.c` (spec 6.4).

/// Greatest sum of a fully loaded series.
const LOAD_AVG_MAX: u64 = 47_742;

/// `floor((2^32 - 1) * 2^(-k/32))`.
const INVERSE: [u32; 32] = [
    0xffff_ffff,
    0xfa83_b2da,
    0xf525_7d14,
    0xefe4_b99a,
    0xeac0_c6e6,
    0xe5b9_06e6,
    0xe0cc_deeb,
    0xdbfb_b796,
    0xd744_fcc9,
    0xd2a8_1d91,
    0xce24_8c14,
    0xc9b9_bd85,
    0xc567_2a10,
    0xc12c_4cc9,
    0xbd08_a39e,
    0xb8fb_af46,
    0xb504_f333,
    0xb123_f581,
    0xad58_3ee9,
    0xa9a1_5ab4,
    0xa5fe_d6a9,
    0xa270_4302,
    0x9ef5_325f,
    0x9b8d_39b9,
    0x9837_f050,
    0x94f4_efa8,
    0x91c3_d373,
    0x8ea4_398a,
    0x8b95_c1e3,
    0x8898_0e80,
    0x85aa_c367,
    0x82cd_8698,
];

/// `value * y^n` with `y^32 = 1/2`.
#[inline]
fn decay(value: u64, n: u64) -> u64 {
    if n > 2016 {
        return 0;
    }
    let value = value >> (n / 32);
    ((u128::from(value) * u128::from(INVERSE[(n % 32) as usize])) >> 32) as u64
}

/// The running averages of a task or queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pelt {
    last: u64,
    contrib: u64,
    load_sum: u64,
    runnable_sum: u64,
    util_sum: u64,
    /// Load, weighted.
    pub load_avg: u64,
    /// Runnable time, 1024 per task that is always runnable.
    pub runnable_avg: u64,
    /// Running time, 1024 for always.
    pub util_avg: u64,
}

/// What an entity did since the last update.
#[derive(Clone, Copy)]
pub struct Activity {
    /// Weight of what was runnable (a queue), or 1 if runnable (a task).
    pub load: u64,
    /// Number of runnable tasks.
    pub runnable: u64,
    /// Something ran.
    pub running: bool,
    /// Factor on load when the average is formed: a task's weight, 1 for a queue.
    pub weight: u64,
}

impl Pelt {
    /// A new task of weight `weight` forked on a queue (`post_init_entity_util_avg`).
    pub fn new_task(now: u64, weight: u64, queue: &Pelt) -> Pelt {
        let room = 1024u64.saturating_sub(queue.util_avg) / 2;
        let util = match queue.util_avg {
            0 => room,
            util => (util * weight / (queue.load_avg + 1)).min(room),
        };
        let mut pelt = Pelt { last: now, load_avg: weight, util_avg: util, runnable_avg: util, ..Pelt::default() };
        pelt.rebuild_sums(weight);
        pelt
    }

    /// Starts the clock at `now` without history.
    pub fn starting_at(now: u64) -> Pelt {
        Pelt { last: now, ..Pelt::default() }
    }

    fn divider(&self) -> u64 {
        LOAD_AVG_MAX - 1024 + self.contrib
    }

    fn rebuild_sums(&mut self, weight: u64) {
        let divider = self.divider();
        self.load_sum = self.load_avg * divider / weight.max(1);
        self.runnable_sum = self.runnable_avg * divider;
        self.util_sum = self.util_avg * divider;
    }

    /// Brings the averages to `now`, the activity having held since the last update.
    #[inline]
    pub fn update(&mut self, now: u64, activity: Activity) {
        if now <= self.last {
            return;
        }
        let delta = (now - self.last) >> 10;
        if delta == 0 {
            return;
        }
        self.last += delta << 10;
        let total = delta + self.contrib;
        let periods = total >> 10;
        let mut contribution = delta;
        if periods > 0 {
            self.load_sum = decay(self.load_sum, periods);
            self.runnable_sum = decay(self.runnable_sum, periods);
            self.util_sum = decay(self.util_sum, periods);
            let rest = total & 1023;
            contribution =
                decay(1024 - self.contrib, periods) + (LOAD_AVG_MAX - decay(LOAD_AVG_MAX, periods) - 1024) + rest;
        }
        self.contrib = total & 1023;
        self.load_sum += activity.load * contribution;
        self.runnable_sum += (activity.runnable * contribution) << 10;
        if activity.running {
            self.util_sum += contribution << 10;
        }
        if periods > 0 {
            let divider = self.divider();
            self.load_avg = activity.weight * self.load_sum / divider;
            self.runnable_avg = self.runnable_sum / divider;
            self.util_avg = self.util_sum / divider;
        }
    }

    /// Takes a task's averages out of a queue's (`detach_entity_load_avg`).
    pub fn detach(&mut self, task: &Pelt) {
        let divider = self.divider();
        self.load_avg = self.load_avg.saturating_sub(task.load_avg);
        self.load_sum = self.load_sum.saturating_sub(task.load_avg * divider);
        self.runnable_avg = self.runnable_avg.saturating_sub(task.runnable_avg);
        self.runnable_sum = self.runnable_sum.saturating_sub(task.runnable_avg * divider);
        self.util_avg = self.util_avg.saturating_sub(task.util_avg);
        self.util_sum = self.util_sum.saturating_sub(task.util_avg * divider);
    }

    /// Adds a task's averages to a queue's and puts the task on the queue's clock (`attach_entity_load_avg`).
    pub fn attach(&mut self, task: &mut Pelt, weight: u64) {
        task.last = self.last;
        task.contrib = self.contrib;
        task.rebuild_sums(weight);
        self.load_avg += task.load_avg;
        self.runnable_avg += task.runnable_avg;
        self.load_sum += weight * task.load_sum;
        self.runnable_sum += task.runnable_sum;
        self.util_sum += task.util_sum;
        self.util_avg += task.util_avg;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_table_is_the_power_of_two_series() {
        for (k, &inverse) in INVERSE.iter().enumerate() {
            let exact = (f64::from(u32::MAX) * 2f64.powf(-(k as f64) / 32.0)).floor();
            assert!((f64::from(inverse) - exact).abs() <= 1.0, "k = {k}");
        }
    }

    #[test]
    fn integer_averages_follow_the_float_series_within_one_percent() {
        let mut pelt = Pelt::starting_at(0);
        let (mut float, mut now) = (0.0f64, 0u64);
        for step in 0..400u64 {
            let running = step % 3 != 0;
            let ms = 1 + step % 7;
            now += ms * 1024 * 1024;
            let activity = Activity { load: running.into(), runnable: running.into(), running, weight: 1024 };
            pelt.update(now, activity);
            let kept = 0.5f64.powf(ms as f64 / 32.0);
            float = float * kept + if running { 1024.0 * (1.0 - kept) } else { 0.0 };
        }
        for average in [pelt.load_avg, pelt.util_avg, pelt.runnable_avg] {
            assert!((average as f64 - float).abs() < 0.02 * 1024.0, "{average} against {float}");
        }
    }

    #[test]
    fn half_is_forgotten_in_32_ms() {
        let mut pelt = Pelt { load_avg: 1024, util_avg: 1024, ..Pelt::default() };
        pelt.rebuild_sums(1024);
        pelt.update(32 * 1024 * 1024, Activity { load: 0, runnable: 0, running: false, weight: 1024 });
        assert!((505..=515).contains(&pelt.util_avg), "{}", pelt.util_avg);
    }

    #[test]
    fn migrations_do_not_freeze_a_queue_that_is_busy_two_thirds_of_the_time() {
        let mut queue = Pelt::starting_at(0);
        let mut visitor = Pelt { util_avg: 300, load_avg: 300, ..Pelt::default() };
        visitor.rebuild_sums(1024);
        let mut busy = 0u64;
        for step in 0..20_000u64 {
            let running = step % 3 != 0;
            busy += u64::from(running);
            let now = (step + 1) * 30_000;
            queue.update(now, Activity { load: 1024, runnable: 1, running, weight: 1 });
            queue.attach(&mut visitor, 1024);
            queue.detach(&visitor);
        }
        let share = 1024 * busy / 20_000;
        assert!(queue.util_avg.abs_diff(share) <= share * 3 / 100, "{} of {share}", queue.util_avg);
    }

    #[test]
    fn what_is_attached_can_be_detached() {
        let mut queue = Pelt::starting_at(1 << 20);
        let mut task = Pelt::new_task(0, 1024, &queue);
        queue.attach(&mut task, 1024);
        assert_eq!((queue.load_avg, queue.util_avg), (1024, 512));
        queue.detach(&task);
        assert_eq!((queue.load_avg, queue.util_avg, queue.runnable_avg), (0, 0, 0));
    }
}

//! Where tasks that never sleep were started and where they ended.

use std::collections::BTreeMap;

use huddle_machine::CpuId;

use crate::{Event, Record};

/// The CPUs of some tasks, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hogs {
    /// Where each was queued first.
    pub first: Vec<CpuId>,
    /// Where each was seen last.
    pub last: Vec<CpuId>,
}

/// The tasks that ran under this name and whose fork the trace has; what exits moved is not counted.
pub fn hogs(records: &[Record], comm: &str) -> Hogs {
    let mut places: BTreeMap<u32, (CpuId, CpuId, bool)> = BTreeMap::new();
    for record in records {
        match record.event {
            Event::Queued { pid, cpu, new: true, .. } => {
                places.insert(pid, (cpu, cpu, false));
            }
            // The first exit ends the load.
            Event::Exit { .. } if &*record.comm == comm => break,
            Event::Migrate { pid, to, .. } => {
                if let Some(place) = places.get_mut(&pid) {
                    place.1 = to;
                }
            }
            _ => {}
        }
        if let Some(place) = places.get_mut(&record.pid) {
            place.1 = record.cpu;
            place.2 |= &*record.comm == comm;
        }
    }
    let seen = || places.values().filter(|place| place.2);
    Hogs { first: seen().map(|place| place.0).collect(), last: seen().map(|place| place.1).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftrace;

    #[test]
    fn a_hog_forked_to_cpu_2_and_pulled_to_cpu_5() {
        let text = "m-1 [000] d..2. 1.0: sched_wakeup_new: comm=m pid=8 prio=120 target_cpu=002\n\
            m-1 [000] d..2. 1.1: sched_wakeup_new: comm=m pid=9 prio=120 target_cpu=003\n\
            hog-8 [002] d..2. 1.2: sched_switch: prev_comm=hog prev_pid=8 prev_prio=120 prev_state=R ==> next_comm=x next_pid=4 next_prio=1\n\
            x-0 [005] d..2. 1.3: sched_migrate_task: comm=hog pid=8 prio=120 orig_cpu=2 dest_cpu=5\n";
        let records = &ftrace::parse(text).expect("lines")[0].records;
        assert_eq!(hogs(records, "hog"), Hogs { first: vec![CpuId(2)], last: vec![CpuId(5)] });
    }
}

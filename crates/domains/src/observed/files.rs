//! One file per figure: `kernel/sched/debug.c:register_sd()` from 5.13, `sd_alloc_ctl_domain_table()` before.

use super::ObservedDomain;

/// The files that are read. Others (`max_newidle_lb_cost`) change while the system runs.
pub(super) const FILES: [&str; 9] = [
    "name",
    "level",
    "flags",
    "groups_flags",
    "min_interval",
    "max_interval",
    "busy_factor",
    "imbalance_pct",
    "cache_nice_tries",
];

impl ObservedDomain {
    /// Takes over what one of [`FILES`] says.
    ///
    /// # Errors
    /// Why the text is not what a kernel writes.
    pub(super) fn set(&mut self, file: &str, text: &str) -> Result<(), String> {
        let text = text.trim();
        let number = || text.parse().map(Some).map_err(|_| format!("`{text}` is not a number"));
        match file {
            "name" => self.name = Some(text.to_owned()),
            "level" => self.level = number()?,
            "flags" => self.flags = flags(text)?,
            "groups_flags" => self.groups_flags = flags(text)?,
            "min_interval" => self.min_interval = number()?,
            "max_interval" => self.max_interval = number()?,
            "busy_factor" => self.busy_factor = number()?,
            "imbalance_pct" => self.imbalance_pct = number()?,
            "cache_nice_tries" => self.cache_nice_tries = number()?,
            _ => {}
        }
        Ok(())
    }
}

/// Flag names. Before 5.10 the file holds a number, whose bits differ from release to release: not read.
fn flags(text: &str) -> Result<Option<Vec<String>>, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    match text.split_whitespace().find(|name| !name.starts_with("SD_")) {
        Some(name) => Err(format!("`{name}` is not the name of a flag (SD_…)")),
        None => Ok(Some(text.split_whitespace().map(str::to_owned).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(files: &[(&str, &str)]) -> Result<ObservedDomain, String> {
        let mut domain = ObservedDomain::default();
        files.iter().try_for_each(|(file, text)| domain.set(file, text)).map(|()| domain)
    }

    #[test]
    fn files_of_6_18_become_one_domain() {
        let read = domain(&[
            ("name", "CLS\n"),
            ("level", "0\n"),
            ("flags", "SD_BALANCE_NEWIDLE SD_CLUSTER SD_SHARE_LLC \n"),
            ("groups_flags", "\n"),
            ("min_interval", "4\n"),
            ("max_newidle_lb_cost", "46688\n"),
        ])
        .unwrap();
        let names = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        let expected = ObservedDomain {
            name: Some("CLS".to_owned()),
            level: Some(0),
            flags: names(&["SD_BALANCE_NEWIDLE", "SD_CLUSTER", "SD_SHARE_LLC"]),
            groups_flags: names(&[]),
            min_interval: Some(4),
            ..ObservedDomain::default()
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn flags_of_5_9_are_a_number_and_not_read() {
        assert_eq!(domain(&[("flags", "559\n")]).unwrap().flags, None);
    }

    #[test]
    fn wrong_files_say_what_they_hold() {
        assert_eq!(domain(&[("level", "one")]).unwrap_err(), "`one` is not a number");
        assert_eq!(domain(&[("busy_factor", "-1")]).unwrap_err(), "`-1` is not a number");
        assert_eq!(domain(&[("flags", "SD_NUMA 3")]).unwrap_err(), "`3` is not the name of a flag (SD_…)");
    }
}

//! The domains that Huddle makes of a machine against those that its kernel shows.

use std::fmt;

use huddle_machine::{CpuId, CpuSet};
use indexmap::{IndexMap, IndexSet};

use crate::observed::{Observed, ObservedDomain, ViewSource};
use crate::{Domain, DomainId, DomainTree, Flags, Kernel};

/// The complaint about levels that do not contain one another; others have other words in a kernel's log.
const BORKEN: &str = "arch topology borken: ";
/// Set by priorities of CPUs.
const ASYM_PACKING: &str = "SD_ASYM_PACKING";
/// The boot parameter that clears [`RELAXED`] from a level on.
const RELAX: &str = "relax_domain_level";
const RELAXED: [&str; 2] = ["SD_BALANCE_NEWIDLE", "SD_BALANCE_WAKE"];

/// What a difference is about (`max_interval`).
type Field = &'static str;

/// One thing that kernel and Huddle say differently, of every CPU of which they say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The CPUs; empty where it is no CPU's.
    pub cpus: CpuSet,
    /// Position of the domain in the CPU's chain, 0 the narrowest.
    pub domain: Option<usize>,
    /// Its name in Huddle, where both have it.
    pub name: Option<String>,
    /// `max_interval`, `groups` …
    pub field: Field,
    /// What the kernel says; `None` when it lacks it.
    pub kernel: Option<String>,
    /// What Huddle says; `None` when it lacks it.
    pub huddle: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.cpus.is_empty() {
            let domain = self.domain.map(|domain| format!(" domain{domain}")).unwrap_or_default();
            let name = self.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
            write!(f, "cpu{}{domain}{name}: ", self.cpus)?;
        }
        let field = self.field;
        match (&self.kernel, &self.huddle) {
            (Some(kernel), Some(huddle)) => write!(f, "kernel says {field} {kernel}, Huddle says {huddle}"),
            (Some(kernel), None) => write!(f, "kernel has {field} {kernel}, Huddle does not"),
            (None, huddle) => {
                write!(f, "Huddle has {field} {}, the kernel does not", huddle.as_deref().unwrap_or_default())
            }
        }
    }
}

/// What came of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// By CPU, then domain.
    pub differences: Vec<Difference>,
    /// What could not be compared, and why.
    pub not_compared: Vec<String>,
    /// What else there is to know.
    pub notes: Vec<String>,
}

/// Compares what both sides have. `tree` is what `kernel` makes of a machine whose CPUs `offline` are not online.
pub fn compare(tree: &DomainTree, offline: &CpuSet, kernel: &Kernel, observed: &Observed) -> Comparison {
    let mut check = Check::new(tree, offline, kernel, observed);
    check.views();
    check.root_domains();
    check.complaints();
    check.finish()
}

/// What makes differences equal but for the CPU.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    domain: Option<usize>,
    name: Option<String>,
    field: Field,
    kernel: Option<String>,
    huddle: Option<String>,
}

/// What a difference is about.
#[derive(Clone, Default)]
struct Place {
    cpu: Option<CpuId>,
    domain: Option<usize>,
    name: Option<String>,
}

struct Check<'a> {
    tree: &'a DomainTree,
    kernel: &'a Kernel,
    observed: &'a Observed,
    /// Whether the domains may have been made while a CPU was leaving.
    may_count_leaving: bool,
    /// One more than the highest CPU id that either side names.
    nr_cpus: usize,
    found: IndexMap<Key, CpuSet>,
    /// Whether the log tells of former domains.
    log_is_stale: bool,
    /// CPUs with a domain whose intervals count one that has left.
    counts_leaving: CpuSet,
    not_compared: Vec<String>,
}

impl<'a> Check<'a> {
    fn new(tree: &'a DomainTree, offline: &CpuSet, kernel: &'a Kernel, observed: &'a Observed) -> Self {
        let highest = observed.views.iter().filter_map(|view| view.cpus.keys().last()).max();
        let nr_cpus = tree.nr_cpus.max(highest.map_or(0, |&highest| highest as usize + 1));
        Check {
            tree,
            kernel,
            observed,
            may_count_leaving: !offline.is_empty() && !kernel.domains.interval_from_span,
            nr_cpus,
            found: IndexMap::new(),
            log_is_stale: false,
            counts_leaving: CpuSet::new(nr_cpus),
            not_compared: observed.absent.clone(),
        }
    }

    fn views(&mut self) {
        let mut stale = CpuSet::new(self.nr_cpus);
        let mut untold = CpuSet::new(self.nr_cpus);
        for view in &self.observed.views {
            let is_log = view.source == ViewSource::Log;
            for cpu in (0..self.nr_cpus).map(CpuId::from) {
                match view.cpus.get(&cpu.0) {
                    Some(domains) if is_log && self.is_stale(cpu, domains) => stale.insert(cpu),
                    Some(domains) => self.cpu(cpu, domains),
                    None if is_log && !self.chain(cpu).is_empty() => untold.insert(cpu),
                    None if is_log => {}
                    None => self.cpu(cpu, &[]),
                }
            }
        }
        self.log_is_stale = !stale.is_empty();
        for (cpus, why) in [
            (stale, "the log tells of other domains than /proc/schedstat shows; sched_verbose was off since"),
            (untold, "the log does not tell of them; sched_verbose was off, or the log begins too late"),
        ] {
            if !cpus.is_empty() {
                self.not_compared.push(format!("groups of cpu{cpus}: {why}"));
            }
        }
    }

    /// Whether the log speaks of other domains than those that the CPU has.
    fn is_stale(&self, cpu: CpuId, domains: &[ObservedDomain]) -> bool {
        let schedstat = self.observed.views.iter().find(|view| view.source == ViewSource::Schedstat);
        let Some(present) = schedstat.and_then(|view| view.cpus.get(&cpu.0)) else { return false };
        let same = |(a, b): (&ObservedDomain, &ObservedDomain)| match (&a.span, &b.span) {
            (Some(a), Some(b)) => equal(a, b),
            _ => true,
        };
        present.len() != domains.len() || !present.iter().zip(domains).all(same)
    }

    fn chain(&self, cpu: CpuId) -> Vec<DomainId> {
        if cpu.index() < self.tree.nr_cpus { self.tree.chain(cpu).collect() } else { Vec::new() }
    }

    /// Pairs the domains of a CPU, one after the other where there are equally many, else by what they are.
    fn cpu(&mut self, cpu: CpuId, theirs: &[ObservedDomain]) {
        let ours = self.chain(cpu);
        let mut next = 0;
        for (at, domain) in theirs.iter().enumerate() {
            let alike = |&other: &usize| ours.len() == theirs.len() || self.is_alike(ours[other], domain);
            match (next..ours.len()).find(alike) {
                Some(pair) => {
                    (next..pair).for_each(|extra| self.only_ours(cpu, extra, ours[extra]));
                    self.domain(cpu, at, ours[pair], domain);
                    next = pair + 1;
                }
                None => {
                    let place = Place { cpu: Some(cpu), domain: Some(at), name: None };
                    self.add(&place, "domain", Some(label(domain)), None);
                }
            }
        }
        (next..ours.len()).for_each(|extra| self.only_ours(cpu, extra, ours[extra]));
    }

    /// Whether they can be the same domain, the chains being of different length.
    fn is_alike(&self, ours: DomainId, theirs: &ObservedDomain) -> bool {
        let domain = self.tree.domain(ours);
        let span = theirs.span.as_ref().map(|span| equal(span, self.tree.span(domain.span)));
        span.or(theirs.name.as_ref().map(|name| name == domain.name)).unwrap_or(false)
    }

    fn only_ours(&mut self, cpu: CpuId, at: usize, id: DomainId) {
        let domain = self.tree.domain(id);
        let place = Place { cpu: Some(cpu), domain: Some(at), name: None };
        self.add(&place, "domain", None, Some(format!("{} {}", domain.name, self.tree.span(domain.span))));
    }

    fn domain(&mut self, cpu: CpuId, at: usize, id: DomainId, theirs: &ObservedDomain) {
        let tree = self.tree;
        let ours = tree.domain(id);
        let place = Place { cpu: Some(cpu), domain: Some(at), name: Some(ours.name.to_owned()) };
        if let Some(theirs) = theirs.name.as_ref().filter(|theirs| *theirs != ours.name) {
            self.add(&place, "name", Some(theirs.clone()), Some(ours.name.to_owned()));
        }
        let counts_leaving = self.may_count_leaving && counts_one_more(theirs, ours);
        if counts_leaving {
            self.counts_leaving.insert(cpu);
        }
        for (field, theirs, ours) in numbers(theirs, ours) {
            if counts_leaving && ["min_interval", "max_interval"].contains(&field) {
                continue;
            }
            if let Some(theirs) = theirs.filter(|&theirs| theirs != u64::from(ours)) {
                self.add(&place, field, Some(theirs.to_string()), Some(ours.to_string()));
            }
        }
        let span = tree.span(ours.span);
        if let Some(theirs) = theirs.span.as_ref().filter(|theirs| !equal(theirs, span)) {
            self.add(&place, "span", Some(theirs.to_string()), Some(span.to_string()));
        }
        self.shown_files(&place, theirs);
        self.flags(&place, "flags", ours.flags, theirs.flags.as_deref());
        self.flags(&place, "groups_flags", tree.first_group(id).flags, theirs.groups_flags.as_deref());
        self.groups(&place, id, theirs);
    }

    /// Files that there are from some release on, in a view that has files.
    fn shown_files(&mut self, place: &Place, theirs: &ObservedDomain) {
        if theirs.min_interval.is_none() {
            return;
        }
        let profile = &self.kernel.domains;
        for (file, theirs, ours) in [
            ("level", theirs.level.is_some(), profile.shows_level),
            ("groups_flags", theirs.groups_flags.is_some(), profile.shows_groups_flags),
        ] {
            if theirs != ours {
                let side = |has: bool| has.then(|| file.to_owned());
                self.add(place, "a file", side(theirs), side(ours));
            }
        }
    }

    /// Names as printed, order included. Both directions are a difference each, so that CPUs with one of them share it.
    fn flags(&mut self, place: &Place, field: Field, ours: Flags, theirs: Option<&[String]>) {
        let Some(theirs) = theirs else { return };
        let printed = ours.printed(self.kernel);
        let ours: Vec<&str> = printed.iter().map(String::as_str).filter(|flag| !self.is_excused(flag)).collect();
        let theirs: Vec<&str> = theirs.iter().map(String::as_str).filter(|flag| !self.is_excused(flag)).collect();
        let only = |list: &[&str], other: &[&str]| {
            let names: Vec<&str> = list.iter().copied().filter(|name| !other.contains(name)).collect();
            (!names.is_empty()).then(|| names.join(" "))
        };
        match (only(&theirs, &ours), only(&ours, &theirs)) {
            (None, None) if theirs == ours => {}
            (None, None) => self.add(place, field, Some(theirs.join(" ")), Some(ours.join(" "))),
            (more, fewer) => {
                if more.is_some() {
                    self.add(place, field, more, None);
                }
                if fewer.is_some() {
                    self.add(place, field, None, fewer);
                }
            }
        }
    }

    /// Flags that depend on what Huddle is not told.
    fn is_excused(&self, flag: &str) -> bool {
        let relaxed = || self.observed.parameter(RELAX).is_some();
        flag == ASYM_PACKING || RELAXED.contains(&flag) && relaxed()
    }

    fn groups(&mut self, place: &Place, id: DomainId, theirs: &ObservedDomain) {
        let Some(theirs) = &theirs.groups else { return };
        let tree = self.tree;
        let ours: Vec<(u32, &CpuSet, &CpuSet)> = tree
            .groups_of(id)
            .map(|group| {
                let group = tree.group(group);
                let mask = tree.span(group.balance_mask);
                (mask.first().map_or(0, |first| first.0), tree.span(group.span), mask)
            })
            .collect();
        let theirs: Vec<(u32, &CpuSet, &CpuSet)> = theirs
            .iter()
            .map(|group| (group.id, &group.span, group.balance_mask.as_ref().unwrap_or(&group.span)))
            .collect();
        let same =
            |a: &(u32, &CpuSet, &CpuSet), b: &(u32, &CpuSet, &CpuSet)| a.0 == b.0 && equal(a.1, b.1) && equal(a.2, b.2);
        if ours.len() != theirs.len() || !ours.iter().zip(&theirs).all(|(a, b)| same(a, b)) {
            self.add(place, "groups", Some(group_list(&theirs)), Some(group_list(&ours)));
        }
    }

    fn root_domains(&mut self) {
        let ours = &self.tree.online;
        match self.observed.root_domains.as_slice() {
            _ if self.log_is_stale => {}
            [] => {}
            [one] if equal(one, ours) => {}
            several => {
                let list: Vec<String> = several.iter().map(|span| format!("{{{span}}}")).collect();
                self.add(&Place::default(), "root domains", Some(list.join(" ")), Some(format!("{{{ours}}}")));
            }
        }
    }

    /// As sets: a kernel complains again whenever it makes the domains anew.
    fn complaints(&mut self) {
        let Some(theirs) = &self.observed.complaints else {
            if !self.tree.complaints.is_empty() {
                self.not_compared.push("complaints: there is no log to look for Huddle's in".to_owned());
            }
            return;
        };
        let ours: IndexSet<&String> = self.tree.complaints.iter().filter(|text| text.starts_with(BORKEN)).collect();
        let ours: Vec<String> = ours.into_iter().cloned().collect();
        for text in theirs.iter().filter(|text| !ours.contains(text)) {
            self.add(&Place::default(), "the complaint", Some(format!("`{text}`")), None);
        }
        for text in ours.iter().filter(|text| !theirs.contains(text)) {
            self.add(&Place::default(), "the complaint", None, Some(format!("`{text}`")));
        }
    }

    fn add(&mut self, place: &Place, field: Field, kernel: Option<String>, huddle: Option<String>) {
        let key = Key { domain: place.domain, name: place.name.clone(), field, kernel, huddle };
        let cpus = self.found.entry(key).or_insert_with(|| CpuSet::new(self.nr_cpus));
        if let Some(cpu) = place.cpu {
            cpus.insert(cpu);
        }
    }

    fn finish(mut self) -> Comparison {
        self.note_excused();
        let mut notes: Vec<String> = self
            .observed
            .kernel_errors
            .iter()
            .map(|error| format!("the kernel itself finds fault with its domains: {error}"))
            .collect();
        let mut differences: Vec<Difference> = self
            .found
            .into_iter()
            .map(|(Key { domain, name, field, kernel, huddle }, cpus)| Difference {
                cpus,
                domain,
                name,
                field,
                kernel,
                huddle,
            })
            .collect();
        differences.sort_by_key(|difference| (difference.cpus.first(), difference.domain));
        if differences.iter().any(|difference| ["span", "domain", "root domains"].contains(&difference.field)) {
            notes.push("cpusets are not read: all online CPUs but the isolated count as one partition".to_owned());
        }
        Comparison { differences, not_compared: self.not_compared, notes }
    }

    fn note_excused(&mut self) {
        if !self.counts_leaving.is_empty() {
            let why = "they count one CPU more, which was going offline when the domains were made";
            self.not_compared.push(format!("some intervals of cpu{}: {why}", self.counts_leaving));
        }
        let domains = self.observed.views.iter().flat_map(|view| view.cpus.values().flatten());
        let mut flags = domains.flat_map(|domain| domain.flags.iter().chain(&domain.groups_flags).flatten());
        if flags.any(|flag| flag == ASYM_PACKING) {
            let why = "the kernel sets it by the priorities of CPUs (ITMT on x86), which Huddle does not read";
            self.not_compared.push(format!("{ASYM_PACKING}: {why}"));
        }
        if let Some(level) = self.observed.parameter(RELAX) {
            let why = format!("the kernel was booted with {RELAX}={level}, which Huddle does not apply");
            self.not_compared.push(format!("{}: {why}", RELAXED.join(", ")));
        }
    }
}

/// Whether the kernel's intervals are those of one CPU more. A CPU that goes offline leaves the domains before it
/// leaves the masks of its levels (`sched_cpu_deactivate`), and where intervals follow the masks they still count it,
/// until the domains are made again for another reason.
fn counts_one_more(theirs: &ObservedDomain, ours: &Domain) -> bool {
    let one_more = u64::from(ours.min_interval) + 1;
    theirs.min_interval == Some(one_more) && theirs.max_interval == Some(2 * one_more)
}

/// The numbers that both sides have: field, the kernel's, Huddle's.
fn numbers(theirs: &ObservedDomain, ours: &Domain) -> [(Field, Option<u64>, u32); 6] {
    [
        ("level", theirs.level, ours.level),
        ("min_interval", theirs.min_interval, ours.min_interval),
        ("max_interval", theirs.max_interval, ours.max_interval),
        ("busy_factor", theirs.busy_factor, ours.busy_factor),
        ("imbalance_pct", theirs.imbalance_pct, ours.imbalance_pct),
        ("cache_nice_tries", theirs.cache_nice_tries, ours.cache_nice_tries),
    ]
}

/// `{0-3} {4-7}`, with the balance CPU and mask where they are not the first CPU and the span.
fn group_list(groups: &[(u32, &CpuSet, &CpuSet)]) -> String {
    let text = |&(id, span, mask): &(u32, &CpuSet, &CpuSet)| {
        let mut text = format!("{{{span}");
        if !equal(span, mask) {
            text += &format!(" mask {mask}");
        }
        if mask.first() != Some(CpuId(id)) {
            text += &format!(" id {id}");
        }
        text + "}"
    };
    groups.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// `MC 0-23` as far as the kernel shows it.
fn label(domain: &ObservedDomain) -> String {
    let span = domain.span.as_ref().map(CpuSet::to_string);
    domain.name.clone().into_iter().chain(span).collect::<Vec<_>>().join(" ")
}

/// The same CPUs, whatever ids the sets range over.
fn equal(a: &CpuSet, b: &CpuSet) -> bool {
    a.is_subset(b) && b.is_subset(a)
}

//! Files that state one set of CPUs for each CPU: the threads of its core, the sharers of a cache, and so on.
//!
//! The kernel writes each set twice, as a list and as a mask, and once more for every CPU in it. Each text is parsed once
//! and each set held once, so that thousands of CPUs cost little more than opening their files.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use rayon::prelude::*;

use super::{CPU, Reader};
use crate::tree::Tree;
use crate::{CpuId, CpuSet};

/// Places read by one job: enough to be worth it, few enough to keep all processors busy.
const PLACES_PER_JOB: usize = 256;

/// Places at which files that should say the same are compared. A snapshot of more is hardly corrected by hand, and
/// opening files is what takes the time.
pub(super) const PLACES_COMPARED: usize = 2048;

/// The two forms of one file.
pub(super) struct Names {
    pub(super) list: &'static str,
    pub(super) mask: &'static str,
}

impl Names {
    fn of(&self, form: Form) -> &'static str {
        match form {
            Form::List => self.list,
            Form::Mask => self.mask,
        }
    }
}

/// Files that say the same, new names before old.
pub(super) type Files = &'static [Names];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `0-3,8`
    List,
    /// `10f`
    Mask,
}

/// Where such files are: a CPU's `topology` folder or one of its caches.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) cpu: CpuId,
    /// The cache's index.
    pub(super) index: Option<u32>,
}

impl Place {
    /// A file's path.
    pub(super) fn path(self, file: &str) -> String {
        let mut path = String::with_capacity(64);
        // Writing to a string does not fail.
        let _ = match self.index {
            Some(index) => write!(path, "{CPU}/cpu{}/cache/index{index}/{file}", self.cpu),
            None => write!(path, "{CPU}/cpu{}/topology/{file}", self.cpu),
        };
        path
    }
}

/// What one place's file says.
#[derive(Clone, Copy)]
pub(super) struct Stated {
    /// Index of the set, online CPUs only.
    pub(super) set: u32,
    /// CPUs named, offline ones included.
    pub(super) width: u32,
    /// The file that says so.
    file: File,
}

/// A file as position in [`Files`] and form.
#[derive(Clone, Copy)]
struct File {
    position: u8,
    form: Form,
}

impl Stated {
    /// What the core is taken to share where no file says anything.
    pub(super) fn assumed(set: u32, width: usize) -> Stated {
        Stated { set, width: width as u32, file: File { position: 0, form: Form::List } }
    }

    fn name(self, files: Files) -> &'static str {
        files[usize::from(self.file.position)].of(self.file.form)
    }
}

/// Each distinct CPU set once, cut to the online CPUs.
#[derive(Default)]
pub(super) struct Sets {
    index: HashMap<Box<[u64]>, u32>,
    sets: Vec<CpuSet>,
}

impl Sets {
    pub(super) fn add(&mut self, set: CpuSet) -> u32 {
        if let Some(&known) = self.index.get(set.words()) {
            return known;
        }
        let next = self.sets.len() as u32;
        self.index.insert(set.words().into(), next);
        self.sets.push(set);
        next
    }

    pub(super) fn get(&self, index: u32) -> &CpuSet {
        &self.sets[index as usize]
    }
}

/// A set cut to the online CPUs and the number of CPUs before.
type Parsed = Result<(CpuSet, u32), String>;

fn parse(data: &[u8], form: Form, online: &CpuSet) -> Parsed {
    let text = String::from_utf8_lossy(data);
    let set = match form {
        Form::List => CpuSet::parse_list(&text),
        Form::Mask => CpuSet::parse_mask(&text),
    };
    set.map(|set| (cut(&set, online), set.len() as u32)).map_err(|error| error.to_string())
}

fn cut(set: &CpuSet, online: &CpuSet) -> CpuSet {
    let mut cut = set.resized(online.capacity());
    cut.intersect_with(online);
    cut
}

/// Some kernels left such files empty (5.15.68 did); some copies are all padding.
fn is_blank(data: &[u8]) -> bool {
    data.iter().all(|byte| *byte == 0 || byte.is_ascii_whitespace())
}

/// What one job read.
#[derive(Default)]
struct Job {
    parsed: Vec<Parsed>,
    /// For each place the file that says something and what it says, as index of `parsed`.
    stated: Vec<Option<(File, usize)>>,
    /// Files that say nothing readable before that, by place.
    unreadable: Vec<(usize, File, usize)>,
}

impl Job {
    fn run(tree: &Tree, online: &CpuSet, places: &[Place], files: Files, order: &[File]) -> Job {
        let mut job = Job::default();
        let mut known: [HashMap<Vec<u8>, usize>; 2] = Default::default();
        for (at, place) in places.iter().enumerate() {
            let stated = order.iter().find_map(|&file| {
                let data = tree.read(&place.path(files[usize::from(file.position)].of(file.form)))?;
                if is_blank(&data) {
                    return None;
                }
                let known = &mut known[file.form as usize];
                let index = known.get(&data).copied().unwrap_or_else(|| {
                    job.parsed.push(parse(&data, file.form, online));
                    known.insert(data, job.parsed.len() - 1);
                    job.parsed.len() - 1
                });
                match &job.parsed[index] {
                    Ok(_) => Some((file, index)),
                    Err(_) => {
                        job.unreadable.push((at, file, index));
                        None
                    }
                }
            });
            job.stated.push(stated);
        }
        job
    }
}

/// Lists first, or masks first.
fn order(files: Files, first: Form) -> Vec<File> {
    let second = if first == Form::List { Form::Mask } else { Form::List };
    let all = |form: Form| (0..files.len()).map(move |position| File { position: position as u8, form });
    all(first).chain(all(second)).collect()
}

impl Reader<'_> {
    /// What each CPU's files in `topology` state, by CPU id.
    pub(super) fn topology(&mut self, files: Files) -> Vec<Option<Stated>> {
        let places: Vec<Place> = self.online.iter().map(|cpu| Place { cpu, index: None }).collect();
        let stated = self.stated(&places, files);
        self.by_cpu(&places, &stated)
    }

    /// What the files at each place state. Where a list and its mask contradict each other, the form by which the CPUs
    /// agree among themselves is taken, and masks when they agree by both: snapshots that were corrected by hand are so
    /// in the masks, which hwloc and lscpu read.
    pub(super) fn stated(&mut self, places: &[Place], files: Files) -> Vec<Option<Stated>> {
        let lists = self.read(places, files, Form::List);
        let Some((place, file, contradiction)) = self.contradiction(places, files, &lists) else { return lists };
        let masks = self.read(places, files, Form::Mask);
        let (taken, form) = match self.agree(places, &lists) && !self.agree(places, &masks) {
            true => (lists, "lists"),
            false => (masks, "masks"),
        };
        let message = format!("{contradiction}; the {form} are taken for all CPUs");
        self.findings.warn("list-and-mask-disagree", Some(place.cpu), place.path(file), message);
        taken
    }

    fn read(&mut self, places: &[Place], files: Files, first: Form) -> Vec<Option<Stated>> {
        let (tree, online, order) = (self.tree, self.online, order(files, first));
        let jobs: Vec<Job> =
            places.par_chunks(PLACES_PER_JOB).map(|places| Job::run(tree, online, places, files, &order)).collect();
        let mut out = Vec::with_capacity(places.len());
        for (job, places) in jobs.into_iter().zip(places.chunks(PLACES_PER_JOB)) {
            for (at, file, index) in job.unreadable {
                let Err(error) = &job.parsed[index] else { continue };
                let path = places[at].path(files[usize::from(file.position)].of(file.form));
                let message = format!("{error}; the file is ignored");
                self.findings.warn("mask-unreadable", Some(places[at].cpu), path, message);
            }
            let mut index_of: Vec<Option<u32>> = vec![None; job.parsed.len()];
            out.extend(job.stated.iter().zip(places).map(|(stated, place)| {
                let &(file, parsed) = stated.as_ref()?;
                let Ok((set, width)) = &job.parsed[parsed] else { return None };
                let set = *index_of[parsed].get_or_insert_with(|| self.sets.add(set.clone()));
                let mut stated = Stated { set, width: *width, file };
                if !self.sets.get(set).contains(place.cpu) {
                    let path = place.path(stated.name(files));
                    stated = self.with_own_cpu(stated, place.cpu, path);
                }
                Some(stated)
            }));
        }
        out
    }

    fn with_own_cpu(&mut self, stated: Stated, cpu: CpuId, path: String) -> Stated {
        let message = "does not hold its own CPU; the CPU is added";
        self.findings.warn("mask-without-self", Some(cpu), path, message);
        let mut set = self.sets.get(stated.set).clone();
        set.insert(cpu);
        Stated { set: self.sets.add(set), width: stated.width + 1, ..stated }
    }

    /// The first list that its mask contradicts, and how.
    fn contradiction(
        &self,
        places: &[Place],
        files: Files,
        lists: &[Option<Stated>],
    ) -> Option<(Place, &'static str, String)> {
        let compared = places.iter().zip(lists).take(PLACES_COMPARED);
        let compared: Vec<(Place, Stated)> = compared
            .filter_map(|(&place, &stated)| Some((place, stated?)))
            .filter(|(_, stated)| stated.file.form == Form::List)
            .collect();
        let (tree, online, sets) = (self.tree, self.online, &self.sets);
        let differing: Vec<(Place, Stated, CpuSet)> = compared
            .par_iter()
            .with_min_len(PLACES_PER_JOB)
            .filter_map(|&(place, stated)| {
                let data = tree.read(&place.path(files[usize::from(stated.file.position)].mask))?;
                let (mask, _) = parse(&data, Form::Mask, online).ok()?;
                // A mask that does not even hold its own CPU says nothing.
                (mask.contains(place.cpu) && mask != *sets.get(stated.set)).then_some((place, stated, mask))
            })
            .collect();
        let (place, stated, mask) = differing.first()?;
        let names = &files[usize::from(stated.file.position)];
        let more = match differing.len() {
            1 => String::new(),
            count => format!(", and {} more like it", count - 1),
        };
        let list = self.sets.get(stated.set);
        Some((*place, names.list, format!("says {list} but {} says {mask}{more}", names.mask)))
    }

    /// Whether all CPUs of each set state the same set.
    fn agree(&self, places: &[Place], stated: &[Option<Stated>]) -> bool {
        let mut by_index: BTreeMap<Option<u32>, Vec<Option<u32>>> = BTreeMap::new();
        for (place, stated) in places.iter().zip(stated) {
            let sets = by_index.entry(place.index).or_insert_with(|| vec![None; self.online.capacity()]);
            sets[place.cpu.index()] = stated.map(|stated| stated.set);
        }
        by_index.values().all(|sets| {
            sets.iter().flatten().all(|&set| self.sets.get(set).iter().all(|cpu| sets[cpu.index()] == Some(set)))
        })
    }

    /// What is stated at places of different CPUs, by CPU id.
    pub(super) fn by_cpu(&self, places: &[Place], stated: &[Option<Stated>]) -> Vec<Option<Stated>> {
        let mut out = vec![None; self.online.capacity()];
        for (place, stated) in places.iter().zip(stated) {
            out[place.cpu.index()] = *stated;
        }
        out
    }

    /// The first CPU of each CPU's set. CPUs form a set when one names the other and their files agree, or when one
    /// names the other and the other has no file. This is stricter than the kernel, which trusts its own masks
    /// (7.2 `kernel/sched/topology.c:topology_span_sane()` refuses contradictions).
    pub(super) fn leaders(
        &mut self,
        stated: &[Option<Stated>],
        files: Files,
        index_of: impl Fn(CpuId) -> Option<u32>,
    ) -> Vec<Option<CpuId>> {
        let Reader { online, sets, findings, .. } = self;
        let mut leader: Vec<Option<CpuId>> = vec![None; stated.len()];
        for cpu in online.iter() {
            let Some(mine) = stated[cpu.index()] else { continue };
            if leader[cpu.index()].is_some() {
                continue;
            }
            let names = sets.get(mine.set);
            let mut other = None;
            for member in names.iter() {
                let free = leader[member.index()].is_none();
                match stated[member.index()] {
                    Some(theirs) if theirs.set == mine.set => leader[member.index()] = Some(cpu),
                    None if free => leader[member.index()] = Some(cpu),
                    _ => other = other.or(Some(member)),
                }
            }
            leader[cpu.index()] = Some(cpu);
            if let Some(other) = other {
                let says = match stated[other.index()] {
                    Some(theirs) => format!("cpu{other} says {}", sets.get(theirs.set)),
                    None => format!("cpu{other} is already in another set"),
                };
                let message = format!("says {names} but {says}; only CPUs that agree are kept together");
                let path = Place { cpu, index: index_of(cpu) }.path(mine.name(files));
                findings.warn("masks-disagree", Some(cpu), path, message);
            }
        }
        leader
    }
}

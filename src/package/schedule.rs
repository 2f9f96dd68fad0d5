//! In which order the packages of a set are written, and which of them have their files out of archives of the input in
//! one pass.
//!
//! Packages that take from one archive are a *batch*: before they are written, one pass over the archive puts what all of
//! them want into spools. Where that would be more than the bound on spools, a batch is cut into several, which costs a pass for
//! each. A package whose manifests state the sizes of other packages' kpack archives needs those built, not written.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of a package.
#[derive(Debug, Clone, Default)]
pub(super) struct Item {
    /// What it takes from that is gone through as a whole, by number: an archive of the input, for one.
    pub(super) from: BTreeSet<usize>,
    /// Bytes that it has in spools because of that.
    pub(super) bytes: u64,
    /// The packages whose kpack archives have to be built before it is written.
    pub(super) needs: BTreeSet<usize>,
    /// Whether it builds kpack archives by itself, when its turn comes.
    pub(super) builds: bool,
    /// Bytes that writing it goes through.
    pub(super) work: u64,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    /// Spools what these packages want.
    Spool(Vec<usize>),
    /// Writes a package.
    Write(usize),
}

/// All steps, the most urgent first, and for each the numbers of those that it needs.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    pub(super) nodes: Vec<Node>,
    pub(super) needs: Vec<Vec<usize>>,
}

/// Makes the steps, with at most `bound` bytes in the spools of a batch, or one package's where that has more.
pub(super) fn schedule(items: &[Item], bound: u64) -> Schedule {
    let schedule = in_batches(items, &batches(items, bound, false));
    if schedule.can_end() {
        return schedule;
    }
    // Two batches need each other: those who need come after all others then.
    in_batches(items, &batches(items, bound, true))
}

/// The batches; with `late_apart` those who need others are in batches of their own.
fn batches(items: &[Item], bound: u64, late_apart: bool) -> Vec<Vec<usize>> {
    // Packages that have something in common, directly or through others.
    let mut sets: Vec<(BTreeSet<usize>, Vec<usize>)> = Vec::new();
    for (package, item) in items.iter().enumerate().filter(|(_, item)| !item.from.is_empty()) {
        let (common, apart): (Vec<_>, Vec<_>) =
            sets.into_iter().partition(|(from, _)| !from.is_disjoint(&item.from));
        let mut joined = (item.from.clone(), Vec::new());
        for (from, packages) in common {
            joined.0.extend(from);
            joined.1.extend(packages);
        }
        joined.1.push(package);
        sets = apart;
        sets.push(joined);
    }
    let mut batches = Vec::new();
    for (_, packages) in sets {
        let bytes: u64 = packages.iter().map(|&package| items[package].bytes).sum();
        if bytes <= bound && !late_apart {
            batches.push(packages);
            continue;
        }
        let mut classes: BTreeMap<bool, Vec<usize>> = BTreeMap::new();
        for package in packages {
            classes.entry(!items[package].needs.is_empty()).or_default().push(package);
        }
        for mut class in classes.into_values() {
            // Those that take from the same come together.
            class.sort_by_key(|&package| (&items[package].from, package));
            let (mut batch, mut bytes) = (Vec::new(), 0);
            for package in class {
                if !batch.is_empty() && bytes + items[package].bytes > bound {
                    batches.push(std::mem::take(&mut batch));
                    bytes = 0;
                }
                bytes += items[package].bytes;
                batch.push(package);
            }
            batches.push(batch);
        }
    }
    batches
}

fn in_batches(items: &[Item], batches: &[Vec<usize>]) -> Schedule {
    let mut steps: Vec<(Node, BTreeSet<usize>)> =
        (0..items.len()).map(|package| (Node::Write(package), BTreeSet::new())).collect();
    let mut batch_of = vec![None; items.len()];
    for (step, batch) in (items.len()..).zip(batches) {
        steps.push((Node::Spool(batch.clone()), BTreeSet::new()));
        batch.iter().for_each(|&package| batch_of[package] = Some(step));
    }
    for (package, item) in items.iter().enumerate() {
        let own = batch_of[package];
        steps[package].1.extend(own);
        for &other in &item.needs {
            let by_itself = items[other].builds.then_some(other);
            // What a package has in spools should not wait there: its batch waits instead.
            for need in batch_of[other].into_iter().chain(by_itself) {
                let waiting = own.filter(|&own| own != need && batch_of[other] != Some(own));
                steps[waiting.unwrap_or(package)].1.insert(need);
            }
        }
    }
    for (step, (_, needs)) in steps.iter_mut().enumerate() {
        needs.remove(&step);
    }
    // What is in spools goes first, so that there is room for the next; then the longest way to the end.
    let after = |package: usize| {
        let needing = items.iter().filter(|item| item.needs.contains(&package));
        items[package].work + needing.map(|item| item.work).max().unwrap_or(0)
    };
    let urgency = |step: usize| match &steps[step].0 {
        Node::Write(package) => (batch_of[*package].is_none(), Reverse(after(*package))),
        Node::Spool(packages) => {
            let longest = packages.iter().map(|&package| after(package)).max().unwrap_or(0);
            let bytes: u64 = packages.iter().map(|&package| items[package].bytes).sum();
            (true, Reverse(bytes + longest))
        }
    };
    let mut order: Vec<usize> = (0..steps.len()).collect();
    order.sort_by_key(|&step| urgency(step));
    let mut place = vec![0; steps.len()];
    order.iter().enumerate().for_each(|(at, &step)| place[step] = at);
    let needs = |step: usize| steps[step].1.iter().map(|&need| place[need]).collect();
    Schedule {
        needs: order.iter().map(|&step| needs(step)).collect(),
        nodes: order.iter().map(|&step| steps[step].0.clone()).collect(),
    }
}

impl Schedule {
    /// Whether no step needs itself through others.
    fn can_end(&self) -> bool {
        let mut done = vec![false; self.nodes.len()];
        let mut more = true;
        while more {
            more = false;
            for step in 0..done.len() {
                if !done[step] && self.needs[step].iter().all(|&need| done[need]) {
                    done[step] = true;
                    more = true;
                }
            }
        }
        done.into_iter().all(|done| done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(from: &[usize], bytes: u64, needs: &[usize]) -> Item {
        let builds = from.is_empty() && needs.is_empty();
        let [from, needs] = [from, needs].map(|all| all.iter().copied().collect());
        Item { from, bytes, needs, builds, work: 10 * bytes }
    }

    /// The steps in the order in which one thread takes them.
    fn alone(items: &[Item], bound: u64) -> Vec<Node> {
        let Schedule { nodes, needs } = schedule(items, bound);
        let mut order: Vec<usize> = Vec::new();
        while let Some(next) = (0..nodes.len())
            .find(|step| !order.contains(step) && needs[*step].iter().all(|n| order.contains(n)))
        {
            order.push(next);
        }
        assert_eq!(order.len(), nodes.len(), "{nodes:?} {needs:?}");
        order.into_iter().map(|step| nodes[step].clone()).collect()
    }

    use Node::{Spool, Write};

    #[test]
    fn of_directories_the_longest_way_comes_first() {
        // 2 needs 0 and 1, and is long.
        let mut items =
            [item(&[], 0, &[]), item(&[], 0, &[]), item(&[], 0, &[0, 1]), item(&[], 0, &[])];
        for (item, work) in items.iter_mut().zip([1, 2, 50, 10]) {
            item.work = work;
        }
        assert_eq!(alone(&items, 0), [Write(1), Write(0), Write(2), Write(3)]);
    }

    #[test]
    fn packages_of_an_archive_are_a_batch_as_far_as_the_bound_allows() {
        // Archive 0 has packages 0, 1 and their generic 2, archive 1 has 3, which 2 needs as well.
        let items =
            [item(&[0], 5, &[]), item(&[0], 6, &[]), item(&[0], 2, &[0, 1, 3]), item(&[1], 4, &[])];
        let all = [Spool(vec![3]), Write(3), Spool(vec![0, 1, 2]), Write(1), Write(0), Write(2)];
        assert_eq!(alone(&items, 13), all);
        let cut = [
            Spool(vec![1]),
            Write(1),
            Spool(vec![0]),
            Write(0),
            Spool(vec![3]),
            Write(3),
            Spool(vec![2]),
            Write(2),
        ];
        assert_eq!(alone(&items, 6), cut);
        let spools = |bound| {
            let nodes = schedule(&items, bound).nodes.into_iter();
            nodes.filter(|node| matches!(node, Spool(_))).count()
        };
        assert_eq!([13, 12, 11, 10, 6, 0].map(spools), [2, 3, 3, 4, 4, 4]);
    }

    #[test]
    fn batches_that_need_each_other_are_cut() {
        let items =
            [item(&[0], 1, &[]), item(&[0], 1, &[2]), item(&[1], 1, &[]), item(&[1], 1, &[0])];
        assert_eq!(alone(&items, 9).len(), 8);
    }

    #[test]
    fn what_takes_from_two_archives_joins_their_packages() {
        let items =
            [item(&[0], 1, &[]), item(&[1], 1, &[]), item(&[0, 1], 1, &[]), item(&[2], 1, &[])];
        let nodes = schedule(&items, 9).nodes;
        assert!(
            nodes.contains(&Spool(vec![0, 1, 2])) && nodes.contains(&Spool(vec![3])),
            "{nodes:?}"
        );
    }
}

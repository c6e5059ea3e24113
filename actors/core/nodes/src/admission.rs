//! Limits the Ready nodes that are Down at the same time (docs/design/nodes.md, N5).

use model::ids::NodeUid;

/// A node that waits to be drained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WaitingNode<'a> {
    /// UID of the node.
    pub(super) uid: &'a NodeUid,
    /// Whether it is Ready. A node that is not Ready reduces no capacity.
    pub(super) ready: bool,
    /// Whether the operator has released it.
    pub(super) released: bool,
}

/// Returns the limit of Ready nodes that may be Down: half of them, and at least two.
#[must_use]
pub(super) fn allowed(ready: usize) -> usize {
    (ready / 2).max(2)
}

/// Returns the waiting nodes to admit, in order, if `down` of `ready` Ready nodes are Down already.
#[must_use]
pub(super) fn admitted<'a>(
    waiting: impl IntoIterator<Item = WaitingNode<'a>>,
    down: usize,
    ready: usize,
) -> Vec<NodeUid> {
    let waiting: Vec<WaitingNode<'a>> = waiting.into_iter().collect();
    // Released nodes are admitted in any case, and leave less room for the others.
    let certain = waiting.iter().filter(|node| node.ready && node.released).count();
    let mut room = allowed(ready).saturating_sub(down + certain);
    let mut goes = |node: &WaitingNode<'_>| {
        if node.released || !node.ready {
            return true;
        }
        let fits = room > 0;
        room = room.saturating_sub(1);
        fits
    };
    waiting.iter().filter(|node| goes(node)).map(|node| node.uid.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uids(count: usize) -> Vec<NodeUid> {
        (0..count).map(|n| NodeUid::new(format!("uid-{n}"))).collect()
    }

    fn shown(admitted: &[NodeUid]) -> Vec<&str> {
        admitted.iter().map(|uid| uid.as_str().trim_start_matches("uid-")).collect()
    }

    /// Builds the nodes from letters: `r` Ready, `n` not Ready, `f` Ready and released. Returns the admitted ones.
    fn admits(nodes: &str, down: usize, ready: usize) -> Vec<String> {
        let uids = uids(nodes.len());
        let waiting = uids.iter().zip(nodes.chars());
        let waiting = waiting.map(|(uid, c)| WaitingNode { uid, ready: c != 'n', released: c == 'f' });
        shown(&admitted(waiting, down, ready)).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn n5_half_of_the_ready_nodes_go_down_and_the_others_wait() {
        assert_eq!(admits("rrrrr", 0, 8), ["0", "1", "2", "3"], "in order of signal");
        assert_eq!(admits("rrrrr", 3, 8), ["0"]);
        assert_eq!(admits("rrrrr", 4, 8), [""; 0]);
        assert_eq!(admits("rrrrr", 9, 8), [""; 0], "also when nodes have become fewer");
        assert_eq!(admits("rrrrr", 0, 7), ["0", "1", "2"], "at most half");
    }

    #[test]
    fn n5_two_may_go_down_in_the_smallest_cluster() {
        assert_eq!(admits("rrr", 0, 3), ["0", "1"]);
        assert_eq!(admits("r", 0, 1), ["0"]);
        assert_eq!(admits("rr", 1, 0), ["0"]);
    }

    #[test]
    fn n5_not_ready_nodes_are_admitted_immediately() {
        assert_eq!(admits("nrnrn", 4, 8), ["0", "2", "4"]);
        assert_eq!(admits("nnnnr", 0, 1), ["0", "1", "2", "3", "4"], "and take no room");
    }

    #[test]
    fn n5_a_released_node_counts_for_the_limit() {
        assert_eq!(admits("rrf", 4, 8), ["2"]);
        assert_eq!(admits("rrf", 2, 8), ["0", "2"], "the one that goes in any case is counted first");
    }

    proptest! {
        #[test]
        fn n5_ready_nodes_that_are_down_stay_within_the_bound(
            kinds in prop::collection::vec(0_u8..3, 0..30), down in 0_usize..20, others in 0_usize..30,
        ) {
            let uids = uids(kinds.len());
            let node = |(uid, kind): (&'_ NodeUid, &u8)| (uid.clone(), *kind > 0, *kind == 2);
            let nodes: Vec<_> = uids.iter().zip(&kinds).map(node).collect();
            let waiting =
                nodes.iter().map(|(uid, ready, free)| WaitingNode { uid, ready: *ready, released: *free });
            let ready = nodes.iter().filter(|(_, ready, _)| *ready).count() + down + others;
            let goes = admitted(waiting, down, ready);
            let is_in = |uid: &NodeUid| goes.contains(uid);
            prop_assert!(nodes.iter().all(|(uid, ready, free)| is_in(uid) || *ready && !*free));
            let bound = |(uid, ready, free): &&(NodeUid, bool, bool)| *ready && !*free && is_in(uid);
            let (bound, free) = (
                nodes.iter().filter(bound).count(),
                nodes.iter().filter(|(_, ready, free)| *ready && *free).count(),
            );
            prop_assert!(bound == 0 || down + free + bound <= allowed(ready));
            // No node waits while fewer Ready nodes are Down than allowed.
            let waits = nodes.iter().any(|(uid, _, _)| !is_in(uid));
            prop_assert!(!waits || down + free + bound >= allowed(ready));
        }
    }
}

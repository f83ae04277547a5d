//! What a catalog answers to its own server, without faults that the test does not make.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ashlar_wire::id::{ClusterId, ServerId};

use super::super::disk::{Disk, Lie};
use super::super::world::{Owner, Place, ServerHost, World};
use crate::change::{CatalogVersion, Change};
use crate::error::RefusalKind;
use crate::raft::catalog::{Begin, Catalog, CatalogConfig, Error};
use crate::record::Expected;
use crate::sample::{key, server_id};

/// [`crate::raft::message::Reply::Unavailable`] in its written form.
const UNAVAILABLE: [u8; 2] = [1, 10];

fn config() -> CatalogConfig {
    CatalogConfig {
        heartbeat: Duration::from_millis(100),
        election_min: Duration::from_millis(600),
        election_max: Duration::from_millis(1_200),
        proposal_max: Duration::from_secs(4),
        retry: Duration::from_millis(50),
        ..CatalogConfig::default()
    }
}

struct Setup {
    world: Arc<World>,
    disks: Vec<Disk>,
}

fn id_of(place: Place) -> ServerId {
    server_id(u32::try_from(place).unwrap())
}

fn ids(places: impl IntoIterator<Item = Place>) -> BTreeSet<ServerId> {
    places.into_iter().map(id_of).collect()
}

fn record(name: &str) -> Change {
    Change::PutRecord { key: key(name), expected: Expected::Absent, value: vec![] }
}

/// A server that votes alone, and others that wait.
fn setup(servers: usize) -> Setup {
    let world = World::new(1, (0..servers).map(id_of).collect());
    let disks = (0..servers).map(|_| Disk::new(world.clone(), Lie::None)).collect();
    let setup = Setup { world, disks };
    (0..servers).for_each(|place| setup.start(place, if place == 0 { Begin::First } else { Begin::Join }));
    setup.world.run_for(Duration::from_secs(2));
    setup
}

impl Setup {
    fn start(&self, place: Place, begin: Begin) {
        let owner = Owner { place, life: 1 };
        let host = Arc::new(ServerHost { world: self.world.clone(), owner });
        let (world, disk) = (self.world.clone(), Arc::new(self.disks[place].clone()));
        let start = async move {
            let cluster = ClusterId::from_bytes([7; 16]);
            let catalog = Catalog::start(host, disk, config(), cluster, id_of(place), begin).await.unwrap();
            world.set_catalog(owner, catalog);
        };
        self.world.spawn(Some(owner), Box::pin(start));
    }

    fn catalog(&self, place: Place) -> Catalog {
        self.world.catalog(place).unwrap()
    }

    /// Begins some work with a server's catalog. Its result comes while the world runs.
    fn begin<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        place: Place,
        work: impl FnOnce(Catalog) -> F,
    ) -> Arc<Mutex<Option<T>>> {
        let result = Arc::new(Mutex::new(None));
        let (done, work) = (result.clone(), work(self.catalog(place)));
        let task = async move {
            let value = work.await;
            *done.lock().unwrap() = Some(value);
        };
        self.world.spawn(Some(Owner { place, life: 1 }), Box::pin(task));
        result
    }

    /// The result of some work that takes less than six seconds.
    fn at<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        place: Place,
        work: impl FnOnce(Catalog) -> F,
    ) -> T {
        let result = self.begin(place, work);
        self.world.run_for(Duration::from_secs(6));
        let value = result.lock().unwrap().take();
        value.expect("the work is done")
    }

    fn propose(&self, place: Place, name: &'static str) -> Result<u64, Error> {
        self.at(place, |catalog| async move { catalog.propose(record(name)).await.map(|applied| applied.version.0) })
    }

    fn change_voters(&self, places: impl IntoIterator<Item = Place>) -> Result<(), Error> {
        let voters = ids(places);
        self.at(0, |catalog| async move { catalog.change_voters(&voters).await })
    }

    fn add_learners(&self, places: impl IntoIterator<Item = Place>) {
        for place in places {
            let added = self.at(0, |catalog| async move { catalog.add_learner(id_of(place)).await });
            assert_eq!(added, Ok(()), "{place}");
        }
    }

    /// Lets nothing through to a server and from it.
    fn cut(&self, place: Place) {
        let others = 0..self.disks.len();
        self.world.with_net(|net| net.cut.extend(others.flat_map(|other| [(place, other), (other, place)])));
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.world.end();
    }
}

#[test]
fn the_first_server_leads_alone_and_the_others_wait() {
    let setup = setup(2);
    let (first, other) = (setup.catalog(0).status(), setup.catalog(1).status());
    assert_eq!((first.leader, first.voters, first.learners), (Some(id_of(0)), vec![id_of(0)], vec![]));
    assert!(setup.catalog(0).is_leader() && first.is_running && !first.is_changing_voters);
    assert_eq!((other.leader, other.voters, other.learners), (None, vec![], vec![]));
    assert!(!setup.catalog(1).is_leader() && other.is_running);
    setup.add_learners([1, 1]);
    let (first, other) = (setup.catalog(0).status(), setup.catalog(1).status());
    assert_eq!((other.leader, &other.voters, &other.learners), (Some(id_of(0)), &vec![id_of(0)], &vec![id_of(1)]));
    assert!(!setup.catalog(1).is_leader());
    assert_eq!((other.applied_index, other.version), (first.applied_index, first.version));
    let removed = setup.at(0, |catalog| async move { catalog.remove(id_of(1)).await });
    assert_eq!((removed, setup.catalog(0).status().learners), (Ok(()), vec![]));
}

#[test]
fn a_leader_answers_its_own_server_without_a_message() {
    let setup = setup(1);
    setup.cut(0);
    assert_eq!(setup.propose(0, "one"), Ok(2));
    let refused = setup.propose(0, "one").unwrap_err();
    assert!(matches!(&refused, Error::Refused(refused) if refused.kind == RefusalKind::Stale), "{refused:?}");
    let done = setup.at(0, |catalog| async move { catalog.propose(Change::SetVoters(vec![])).await });
    assert!(matches!(done, Err(Error::NotAllowed(_))), "{done:?}");
}

#[test]
fn from_one_to_seven_servers_vote() {
    let setup = setup(8);
    for wrong in [0..0, 0..8] {
        let done = setup.change_voters(wrong.clone());
        assert!(matches!(done, Err(Error::NotAllowed(_))), "{wrong:?}: {done:?}");
    }
    assert_eq!(setup.change_voters([0, 1]), Err(Error::Unknown), "it has nothing of the log");
    setup.add_learners(1..8);
    assert_eq!(setup.change_voters(0..7), Ok(()));
    let status = setup.catalog(0).status();
    assert_eq!((status.voters, status.learners), ((0..7).map(id_of).collect(), vec![id_of(7)]));
    assert!(!status.is_changing_voters);
    assert_eq!(setup.catalog(0).state().voters(), (0..7).map(id_of).collect::<Vec<_>>());
    let removed = setup.at(0, |catalog| async move { catalog.remove(id_of(1)).await });
    assert!(matches!(&removed, Err(Error::Refused(refused)) if refused.kind == RefusalKind::BadValue), "{removed:?}");
}

#[test]
fn old_and_new_voters_decide_together_while_they_change() {
    let setup = setup(3);
    setup.add_learners([1, 2]);
    (1..3).for_each(|place| setup.cut(place));
    assert_eq!(setup.change_voters(0..3), Err(Error::Unknown));
    let status = setup.catalog(0).status();
    assert!(status.is_changing_voters);
    assert_eq!(status.voters, [0, 1, 2].map(id_of));
    setup.world.with_net(|net| net.cut.clear());
    assert_eq!(setup.change_voters(0..3), Ok(()));
    assert!(!setup.catalog(0).status().is_changing_voters);
}

#[test]
fn a_proposal_is_tried_for_as_long_as_it_may_be() {
    let setup = setup(2);
    setup.add_learners([1]);
    setup.cut(1);
    let world = setup.world.clone();
    let (done, took) = setup.at(1, |catalog| async move {
        let since = world.now();
        (catalog.propose(record("one")).await, world.now().saturating_since(since))
    });
    assert_eq!(done, Err(Error::Unknown));
    let config = config();
    assert!(took <= config.proposal_max && took + config.retry >= config.proposal_max, "{took:?}");
    setup.world.with_net(|net| net.cut.clear());
    assert_eq!(setup.propose(1, "two"), Ok(3), "the leader has it from the other server");
}

#[test]
fn whoever_watches_hears_of_later_versions() {
    let setup = setup(1);
    let version = setup.catalog(0).state().version();
    let watch = |after: CatalogVersion| {
        setup.begin(0, move |catalog| async move {
            let news = catalog.watch(after).await;
            (news.state.version().0, news.entries.map(|entries| entries.len()))
        })
    };
    let (next, later) = (watch(version), watch(version.next()));
    let past = watch(CatalogVersion(0));
    setup.world.run_for(Duration::from_secs(1));
    let taken = |news: &Mutex<Option<(u64, Option<usize>)>>| news.lock().unwrap().take();
    assert_eq!((taken(&past), taken(&next), taken(&later)), (Some((1, Some(1))), None, None));
    assert_eq!(setup.propose(0, "one"), Ok(2));
    assert_eq!((taken(&next), taken(&later)), (Some((2, Some(1))), None));
    assert_eq!(setup.propose(0, "two"), Ok(3));
    assert_eq!(taken(&later), Some((3, Some(1))));
}

#[test]
fn a_catalog_that_has_stopped_answers_nothing() {
    let setup = setup(2);
    setup.add_learners([1]);
    setup.at(0, |catalog| async move { catalog.stop().await });
    assert!(!setup.catalog(0).status().is_running && setup.catalog(1).status().is_running);
    assert_eq!(setup.propose(0, "one"), Err(Error::Stopped));
    let caught_up = setup.at(0, |catalog| async move { catalog.catch_up().await });
    assert_eq!(caught_up, Err(Error::Stopped));
    // A question how far the log is decided: a leader that runs answers it.
    let read_index = [1, 9];
    let answer = setup.at(0, move |catalog| async move { catalog.handle(&read_index).await });
    assert_eq!(answer, UNAVAILABLE);
    // The first of two bytes of a snapshot: whoever runs wants the next one.
    let chunk = [&[1, 4, 9, 0xc4, 16][..], id_of(1).as_bytes(), &[1, 0, 0, 0, 0, 2, 0, 0xc4, 1, 7]].concat();
    for (place, expected) in [(0, UNAVAILABLE), (1, [1, 3])] {
        let message = chunk.clone();
        let answer = setup.at(place, move |catalog| async move { catalog.handle(&message).await });
        assert_eq!(answer, expected, "{place}");
    }
    assert_eq!(setup.propose(1, "one"), Err(Error::Unknown));
}

#[test]
fn bytes_that_are_no_message_are_answered_too() {
    let setup = setup(1);
    for message in [&[][..], &[2, 9], &[1, 77], &[1, 9, 0]] {
        let answer = setup.at(0, move |catalog| async move { catalog.handle(message).await });
        assert_eq!(answer, UNAVAILABLE, "{message:?}");
    }
    let answer = setup.at(0, |catalog| async move { catalog.handle(&[1, 9]).await });
    let applied = setup.catalog(0).status().applied_index.unwrap();
    assert_eq!(answer, [1, 7, u8::try_from(applied).unwrap()]);
}

/// It may have lost its drive, and with it what it has promised.
#[test]
fn a_server_without_members_votes_for_nobody() {
    let setup = setup(2);
    let vote = |kind: u8| [&[1, kind, 9, 0xc4, 16][..], id_of(1).as_bytes(), &[0, 0, 0]].concat();
    for kind in [2, 3] {
        let message = vote(kind);
        let answer = setup.at(1, move |catalog| async move { catalog.handle(&message).await });
        assert_eq!(answer, UNAVAILABLE, "{kind}");
        let message = vote(kind);
        let answer = setup.at(0, move |catalog| async move { catalog.handle(&message).await });
        assert_eq!(answer[..2], [1, 2], "whoever knows the members says yes or no");
    }
}

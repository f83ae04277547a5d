//! Parts and routes.

use alloc::vec;

use super::*;
use crate::balance::balance;
use crate::domains::Conflict;
use crate::rule::{ExtentSize, Mapping};
use crate::sample::{drives, map, shape};

const ID: VolumeId = VolumeId::from_bytes([9; 16]);

fn part(set: u32, extents: u64) -> Part {
    Part { set: SetId(set), extents }
}

fn volume(parts: &[Part]) -> Result<Volume, Error> {
    Volume::new(ID, Rule::default(), parts)
}

#[test]
fn offsets_lie_in_parts() {
    let volume = volume(&[part(1, 10), part(2, 1), part(1, 5)]).unwrap();
    assert_eq!(volume.size(), 16 << 20);
    let cases = [(0, 1, 0, 0), ((10 << 20) - 1, 1, 9, 0xf_ffff), (10 << 20, 2, 10, 0), (11 << 20, 1, 11, 0)];
    for (offset, set, extent, within) in cases {
        let len = (1 << 20) - within;
        let expected = Location { set: SetId(set), extent: Extent(extent), offset: within, len };
        assert_eq!(volume.locate(offset), Ok(expected), "{offset}");
    }
    for offset in [16 << 20, u64::MAX] {
        assert_eq!(volume.locate(offset), Err(Error::BehindEnd { offset, size: 16 << 20 }));
    }
}

#[test]
fn growing_moves_nothing() {
    let mut volume = volume(&[part(1, 10)]).unwrap();
    let before: Vec<_> = (0..10).map(|extent| volume.locate(extent << 20)).collect();
    volume.grow(part(1, 3)).unwrap();
    volume.grow(part(2, 7)).unwrap();
    assert_eq!(volume.parts().collect::<Vec<_>>(), [part(1, 13), part(2, 7)]);
    assert_eq!((0..10).map(|extent| volume.locate(extent << 20)).collect::<Vec<_>>(), before);
}

#[test]
fn what_makes_no_volume() {
    assert_eq!(volume(&[]), Err(Error::Missing("part")));
    assert_eq!(volume(&[part(1, 0)]), Err(Error::Missing("extent")));
    let most = u64::MAX >> 20;
    let too_many = |what, count, max| Err(Error::TooMany { what, count, max });
    assert_eq!(volume(&[part(1, most), part(2, 1)]), too_many("extents", most + 1, most));
    let alternating: Vec<Part> = (0..1_025).map(|number| part(number % 2, 1)).collect();
    assert_eq!(volume(&alternating), too_many("parts", 1_025, 1_024));
    assert_eq!(volume(&alternating[..1_024]).unwrap().extents(), 1_024);
}

/// 32 TiB and the smallest extents, 512 million of them: the same bytes as a volume of one extent, and the last one is
/// found at once.
#[test]
fn size_costs_nothing() {
    let rule = Rule { extent_size: ExtentSize::MIN, mapping: Mapping::Shuffled };
    let small = Volume::new(ID, rule, &[part(1, 1)]).unwrap();
    let large = Volume::new(ID, rule, &[part(1, (32 << 40) / (64 << 10))]).unwrap();
    assert_eq!(large.size(), 32 << 40);
    // All that a volume has on the heap is its list of parts.
    assert_eq!((large.parts.len(), large.parts.capacity()), (small.parts.len(), small.parts.capacity()));
    assert_eq!(large.locate((32 << 40) - 1).unwrap().extent, Extent((1 << 29) - 1));
}

#[test]
fn routes_lead_to_the_drives_of_the_placement_group() {
    let table = balance(None, map(1, shape(1_000, 3, Conflict::Server), &drives(60, 3))).unwrap();
    let volume = volume(&[part(1, 1_000), part(2, 1)]).unwrap();
    let mut used = vec![0; 1_000];
    for extent in 0..1_000 {
        let route = volume.route(volume.locate(extent << 20).unwrap(), &table).unwrap();
        assert!(route.drives().eq(table.drives(route.pg)));
        used[route.pg.index()] += 1;
    }
    assert!(used.iter().all(|count| *count == 1), "a round uses each placement group once");
    let elsewhere = volume.locate(1_000 << 20).unwrap();
    let error = Error::OtherSet { expected: SetId(2), given: SetId(1) };
    assert_eq!(volume.route(elsewhere, &table).err(), Some(error));
}

//! Figures of placement.
use std::time::Instant;
use std::collections::BTreeMap;
use ashlar_placement::balance::balance;
use ashlar_placement::choose::PgTable;
use ashlar_placement::domains::Conflict;
use ashlar_placement::map::*;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, ServerId};

fn id(n: u32) -> [u8; 16] { let mut b = [0; 16]; b[12..].copy_from_slice(&n.to_be_bytes()); b }
fn drive(n: u32, per: u32, w: u32) -> Drive {
    let s = n / per;
    Drive { id: DriveId::from_bytes(id(n)), server: ServerId::from_bytes(id(s)), rack: Rack(s / 5), zone: Zone(s/5 % 5), weight: Weight(w), state: DriveState::In }
}
fn spread(t: &PgTable) -> (f64, f64) {
    let mut lo = 0f64; let mut hi = 0f64;
    for f in t.fill() { if f.due.0 == 0 { continue } let d = f.due.0 as f64 / (1u64<<20) as f64; let r = f.seats as f64 / d - 1.0; lo = lo.min(r); hi = hi.max(r); }
    (lo * 100.0, hi * 100.0)
}
fn moved(a: &PgTable, b: &PgTable) -> (usize, usize) {
    let mut sets = 0; let mut seats = 0;
    for pg in 0..a.map().shape().pgs {
        let x: Vec<_> = a.drives(PgId(pg)).map(|d| d.id).collect();
        let y: Vec<_> = b.drives(PgId(pg)).map(|d| d.id).collect();
        seats += x.iter().zip(&y).filter(|(p, q)| p != q).count();
        sets += y.iter().filter(|q| !x.contains(q)).count();
    }
    (seats, sets)
}
fn main() {
    let arg: Vec<u32> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let (n, per, pgs, seats, cycles) = (arg[0], arg[1], arg[2], arg[3], arg[4]);
    let hetero = arg.get(5).copied().unwrap_or(0);
    let w = |n: u32| if hetero == 0 { 4000 } else { 1000 * (1 + (n / per) % (hetero + 1)) };
    let shape = Shape { pgs, seats: seats as u8, conflict: Conflict::Server };
    let mut drives: BTreeMap<u32, Drive> = (0..n).map(|i| (i, drive(i, per, w(i)))).collect();
    let map = |e: u64, d: &BTreeMap<u32, Drive>| Map::new(SetId(1), Epoch(e), shape, d.values().copied().collect()).unwrap();
    let t = Instant::now();
    let plain = PgTable::new(map(1, &drives));
    println!("plain {:?} spread {:?}", t.elapsed(), spread(&plain));
    let t = Instant::now();
    let mut table = balance(None, map(1, &drives)).unwrap();
    println!("balance {:?} spread {:?} pins {} bytes {}", t.elapsed(), spread(&table), table.map().pins().len(), table.map().encode().len());
    let total = (pgs * seats) as usize;
    let mut next_id = n; let mut rng = 12345u64;
    let mut extra = (0, 0, 0, 0); let mut worst: f64 = 0.0;
    for c in 0..cycles {
        rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let k = *drives.keys().nth((rng >> 33) as usize % drives.len()).unwrap();
        let gone = drives.remove(&k).unwrap();
        let own = table.fill()[table.map().find(gone.id).unwrap().get()].seats as usize;
        let t = Instant::now();
        let after = balance(Some(&table), map(2 + 2 * c as u64, &drives)).unwrap();
        let dt = t.elapsed();
        let m = moved(&table, &after);
        let s1 = spread(&after);
        extra.0 += own; extra.1 += m.0;
        // new one in the same server
        let mut d = drive(0, per, gone.weight.0); d.id = DriveId::from_bytes(id(next_id)); d.server = gone.server; d.rack = gone.rack; d.zone = gone.zone;
        drives.insert(next_id, d); next_id += 1;
        let again = balance(Some(&after), map(3 + 2 * c as u64, &drives)).unwrap();
        let f = again.fill()[again.map().find(d.id).unwrap().get()];
        let m2 = moved(&after, &again);
        let s2 = spread(&again);
        extra.2 += f.seats as usize; extra.3 += m2.0;
        worst = worst.max(s1.1).max(-s1.0).max(s2.1).max(-s2.0);
        if c < 3 || c % (cycles / 10).max(1) == 0 {
            println!("{c}: removed own {own} moved {m:?} {dt:?} spread {s1:?}; added {} due {:.1} moved {m2:?} spread {s2:?} pins {} ({:.1} %)", f.seats, f.due.0 as f64 / 1048576.0, again.map().pins().len(), again.map().pins().len() as f64 / pgs as f64 * 100.0);
        }
        table = again;
    }
    println!("removal: own {} moved {}; add: got {} moved {}; worst {worst}; total {total}", extra.0, extra.1, extra.2, extra.3);
}

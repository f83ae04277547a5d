//! Points on the earth: sorted sets whose scores are places.

use super::call::{Call, Run};
use super::sorted_set::{add, store};
use crate::error::Error;
use crate::keyspace::Key;
use crate::resp::number::{Decimal, parse_i64};
use crate::resp::{Reply, Request};
use crate::value::geo::{Point, Shape, middle};
use crate::value::score::parse_score;
use crate::value::zset::{ScoreBound, ScoreRange, When, ZSet};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("geoadd", geoadd),
    ("geodist", geodist),
    ("geohash", geohash),
    ("geopos", geopos),
    ("georadius", |call| search(call, Form::Radius { of_member: false, may_keep: true })),
    ("georadius_ro", |call| search(call, Form::Radius { of_member: false, may_keep: false })),
    ("georadiusbymember", |call| search(call, Form::Radius { of_member: true, may_keep: true })),
    ("georadiusbymember_ro", |call| search(call, Form::Radius { of_member: true, may_keep: false })),
    ("geosearch", |call| search(call, Form::Search { keeps: false })),
    ("geosearchstore", |call| search(call, Form::Search { keeps: true })),
];

/// Longitude and latitude, from word `at` on.
fn point(call: &Call<'_, '_>, at: usize) -> Result<Point, Error> {
    let number = |at: usize| parse_score(&call.args[at]).ok_or(Error::NOT_FLOAT);
    let (longitude, latitude) = (number(at)?, number(at + 1)?);
    let outside = || Error::text(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"));
    Point::new(longitude, latitude).ok_or_else(outside)
}

/// The metres of the unit in word `at`.
fn unit(call: &Call<'_, '_>, at: usize) -> Result<f64, Error> {
    let units = [("M", 1.0), ("KM", 1_000.0), ("FT", 0.3048), ("MI", 1_609.34)];
    let found = units.into_iter().find(|(name, _)| call.args.is(at, name)).map(|(_, metres)| metres);
    found.ok_or(Error::new("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

/// Replies a distance with four digits behind the point.
fn reply_distance(reply: &mut Reply, distance: f64) {
    #[expect(clippy::cast_possible_truncation, reason = "no distance on earth is near 2^63 of these")]
    let scaled = (distance * 10_000.0).round_ties_even() as i64;
    reply.bulk(format!("{}.{:04}", scaled / 10_000, scaled % 10_000).as_bytes());
}

/// Replies a coordinate with all its digits.
fn reply_coordinate(reply: &mut Reply, degrees: f64) {
    let text = format!("{degrees:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    reply.double(if text == "-0" { b"0" } else { text.as_bytes() });
}

fn reply_point(reply: &mut Reply, point: Point) {
    reply.array(2);
    reply_coordinate(reply, point.longitude);
    reply_coordinate(reply, point.latitude);
}

fn geoadd(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let mut options = add::Options::default();
    let mut at = 2;
    loop {
        match () {
            () if call.args.is(at, "NX") => options.when.is_new = true,
            () if call.args.is(at, "XX") => options.when.is_known = true,
            () if call.args.is(at, "CH") => options.counts_changed = true,
            () => break,
        }
        at += 1;
    }
    let words = call.args.len() - at;
    let When { is_new, is_known, .. } = options.when;
    if words == 0 || !words.is_multiple_of(3) || is_new && is_known {
        return Err(Error::SYNTAX);
    }
    let mut instead: Request = [&b"ZADD"[..]].into_iter().chain(call.args.from(1).take(at - 1)).collect();
    let mut entries = Vec::with_capacity(words / 3);
    for at in (at..call.args.len()).step_by(3) {
        let (score, member) = (point(call, at)?.score(), call.args.get(at + 2).expect("words come in threes"));
        #[expect(clippy::cast_possible_truncation, reason = "it is whole, and has 52 bits")]
        instead.push(Decimal::new(score as i64).as_bytes());
        instead.push(member);
        entries.push((score, member));
    }
    add::put(call, &options, &entries)?;
    call.trace(vec![instead]);
    Ok(())
}

fn geopos(call: &mut Call<'_, '_>) -> Result<(), Error> {
    each_member(call, |reply, point| match point {
        Some(point) => reply_point(reply, point),
        None => reply.null_array(),
    })
}

fn geohash(call: &mut Call<'_, '_>) -> Result<(), Error> {
    each_member(call, |reply, point| match point {
        Some(point) => reply.bulk(&point.geohash()),
        None => reply.null(),
    })
}

/// Replies something for the point of each member from word 2 on.
fn each_member(call: &mut Call<'_, '_>, show: impl Fn(&mut Reply, Option<Point>)) -> Result<(), Error> {
    let (key, hash_key) = (call.key(1), call.engine.keyspace.hash_key());
    let set = call.keys.get::<ZSet>(key)?;
    call.reply.array(call.args.len() - 2);
    for member in call.args.from(2) {
        let score = set.and_then(|set| set.score(member, hash_key));
        show(call.reply, score.map(Point::of_score));
    }
    Ok(())
}

fn geodist(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let unit_m = match call.args.len() {
        4 => 1.0,
        5 => unit(call, 4)?,
        _ => return Err(Error::SYNTAX),
    };
    let (key, hash_key) = (call.key(1), call.engine.keyspace.hash_key());
    let set = call.keys.get::<ZSet>(key)?;
    let point = |member: &[u8]| set.and_then(|set| set.score(member, hash_key)).map(Point::of_score);
    match point(&call.args[2]).zip(point(&call.args[3])) {
        Some((one, other)) => reply_distance(call.reply, one.distance_m(other) / unit_m),
        None => call.reply.null(),
    }
    Ok(())
}

/// Which command searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// GEORADIUS and its like, with fixed words for the centre and the radius.
    Radius { of_member: bool, may_keep: bool },
    /// GEOSEARCH and GEOSEARCHSTORE.
    Search { keeps: bool },
}

/// What is looked for, and what is done with it.
#[derive(Debug)]
struct Query<'c> {
    /// Nothing where it is a member of a set that is not there.
    centre: Option<Point>,
    has_centre: bool,
    /// Whether it was told by its coordinates.
    centre_is_point: bool,
    shape: Option<Shape>,
    unit_m: f64,
    with_distance: bool,
    with_score: bool,
    with_point: bool,
    /// So many; 0 is all.
    count: usize,
    /// Any, not the nearest.
    is_any: bool,
    /// Whether the nearest come first, if there is an order.
    order: Option<bool>,
    target: Option<Key<'c>>,
    keeps_distance: bool,
}

impl<'c> Query<'c> {
    fn read(call: &mut Call<'c, '_>, form: Form, source: Key<'_>) -> Result<Self, Error> {
        let mut query = Self {
            centre: None,
            has_centre: false,
            centre_is_point: false,
            shape: None,
            unit_m: 1.0,
            with_distance: false,
            with_score: false,
            with_point: false,
            count: 0,
            is_any: false,
            order: None,
            target: None,
            keeps_distance: false,
        };
        let is_there = call.keys.get::<ZSet>(source)?.is_some();
        let mut at = match form {
            Form::Radius { of_member: false, .. } => {
                query.centre = Some(point(call, 2)?);
                query.read_circle(call, 4)?;
                6
            }
            Form::Radius { of_member: true, .. } => {
                if is_there {
                    query.centre = Some(member(call, source, 2)?);
                    query.read_circle(call, 3)?;
                }
                5
            }
            Form::Search { keeps } => {
                query.target = keeps.then(|| call.key(1));
                if keeps { 3 } else { 2 }
            }
        };
        while at < call.args.len() {
            at = match query.read_plain(call, at, form)? {
                Some(next) => next,
                None => query.read_search(call, at, form, source.bytes, is_there)?,
            };
        }
        query.check(call, form)?;
        Ok(query)
    }

    fn read_circle(&mut self, call: &Call<'_, '_>, at: usize) -> Result<(), Error> {
        let radius = parse_score(&call.args[at]).ok_or(Error::new("ERR need numeric radius"))?;
        if radius < 0.0 {
            return Err(Error::new("ERR radius cannot be negative"));
        }
        self.unit_m = unit(call, at + 1)?;
        self.shape = Some(Shape::Circle { radius_m: radius * self.unit_m });
        Ok(())
    }

    fn read_box(&mut self, call: &Call<'_, '_>, at: usize) -> Result<(), Error> {
        let width = parse_score(&call.args[at]).ok_or(Error::new("ERR need numeric width"))?;
        let height = parse_score(&call.args[at + 1]).ok_or(Error::new("ERR need numeric height"))?;
        if width < 0.0 || height < 0.0 {
            return Err(Error::new("ERR height or width cannot be negative"));
        }
        self.unit_m = unit(call, at + 2)?;
        self.shape = Some(Shape::Box { width_m: width * self.unit_m, height_m: height * self.unit_m });
        Ok(())
    }

    /// Corners, their number first. The middle of them is the centre.
    fn read_polygon(&mut self, call: &Call<'_, '_>, at: usize) -> Result<usize, Error> {
        let count = parse_i64(&call.args[at]).and_then(|count| i32::try_from(count).ok());
        let count = count.ok_or(Error::new("ERR invalid number of vertices"))?;
        let possible = (call.args.len() - at - 1) / 2;
        let count = usize::try_from(count).ok().filter(|count| (3..=possible).contains(count));
        let count = count.ok_or(Error::new("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"))?;
        let end = at + 1 + 2 * count;
        let corners = (at + 1..end).step_by(2).map(|at| point(call, at)).collect::<Result<Vec<_>, _>>()?;
        self.unit_m = 1.0;
        self.centre = Some(middle(&corners));
        self.shape = Some(Shape::Polygon { corners });
        Ok(end)
    }

    const fn is_polygon(&self) -> bool {
        matches!(self.shape, Some(Shape::Polygon { .. }))
    }

    /// Reads an option that all commands have, or the word that a result is kept behind. Returns the word that follows.
    fn read_plain(&mut self, call: &Call<'c, '_>, at: usize, form: Form) -> Result<Option<usize>, Error> {
        let (is, has_value) = (|word| call.args.is(at, word), at + 1 < call.args.len());
        match () {
            () if is("WITHDIST") => self.with_distance = true,
            () if is("WITHHASH") => self.with_score = true,
            () if is("WITHCOORD") => self.with_point = true,
            () if is("ANY") => self.is_any = true,
            () if is("ASC") => self.order = Some(true),
            () if is("DESC") => self.order = Some(false),
            () if is("COUNT") && has_value => {
                let count = usize::try_from(call.integer(at + 1)?).ok().filter(|count| *count > 0);
                self.count = count.ok_or(Error::new("ERR COUNT must be > 0"))?;
                return Ok(Some(at + 2));
            }
            // The last one counts: it is the one that `Search::LastStore` finds, so that its key is held and was permitted.
            () if has_value && form.may_keep() && (is("STORE") || is("STOREDIST")) => {
                (self.target, self.keeps_distance) = (Some(call.key(at + 1)), is("STOREDIST"));
                return Ok(Some(at + 2));
            }
            () if is("STOREDIST") && form == (Form::Search { keeps: true }) => self.keeps_distance = true,
            () => return Ok(None),
        }
        Ok(Some(at + 1))
    }

    /// Reads an option of GEOSEARCH that says where and how far. Returns the word that follows.
    fn read_search(
        &mut self,
        call: &mut Call<'_, '_>,
        at: usize,
        form: Form,
        source: &[u8],
        is_there: bool,
    ) -> Result<usize, Error> {
        let (args, left) = (call.args, call.args.len() - at - 1);
        if !matches!(form, Form::Search { .. }) {
            return Err(Error::SYNTAX);
        }
        let was_point = self.has_centre && self.centre_is_point;
        let is_polygon = self.is_polygon();
        match () {
            () if args.is(at, "FROMMEMBER") && left >= 1 && !was_point && !is_polygon => {
                if is_there {
                    self.centre = Some(member(call, call.keys.key(source), at + 1)?);
                }
                (self.has_centre, self.centre_is_point) = (true, false);
                Ok(at + 2)
            }
            () if args.is(at, "FROMLONLAT") && left >= 2 && (was_point || !self.has_centre) && !is_polygon => {
                self.centre = Some(point(call, at + 1)?);
                (self.has_centre, self.centre_is_point) = (true, true);
                Ok(at + 3)
            }
            () if args.is(at, "BYRADIUS") && left >= 2 && matches!(self.shape, None | Some(Shape::Circle { .. })) => {
                self.read_circle(call, at + 1)?;
                Ok(at + 3)
            }
            () if args.is(at, "BYBOX") && left >= 3 && matches!(self.shape, None | Some(Shape::Box { .. })) => {
                self.read_box(call, at + 1)?;
                Ok(at + 4)
            }
            () if args.is(at, "BYPOLYGON") && left >= 2 && !self.has_centre && (is_polygon || self.shape.is_none()) => {
                self.read_polygon(call, at + 1)
            }
            () => Err(Error::SYNTAX),
        }
    }

    /// Refuses what does not go together, and lets the nearest come first where not all are wanted.
    fn check(&mut self, call: &Call<'_, '_>, form: Form) -> Result<(), Error> {
        let name = || String::from_utf8_lossy(&call.args[0]).into_owned();
        if self.target.is_some() && (self.with_distance || self.with_score || self.with_point) {
            let what = if form.may_keep() { "STORE option in GEORADIUS" } else { "GEOSEARCHSTORE" };
            let text = format!("ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options");
            return Err(Error::text(text));
        }
        if matches!(form, Form::Search { .. }) && !self.has_centre && !self.is_polygon() {
            let text = format!("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {}", name());
            return Err(Error::text(text));
        }
        if matches!(form, Form::Search { .. }) && self.shape.is_none() {
            let text = format!("ERR exactly one of BYRADIUS, BYBOX and BYPOLYGON can be specified for {}", name());
            return Err(Error::text(text));
        }
        if self.is_any && self.count == 0 {
            return Err(Error::new("ERR the ANY argument requires COUNT argument"));
        }
        if self.count > 0 && !self.is_any {
            self.order = self.order.or(Some(true));
        }
        Ok(())
    }

    /// What is found in a set, in its order, and not more than is wanted.
    fn find(&self, set: &ZSet) -> Vec<Found> {
        let mut found = Vec::new();
        let Some((centre, shape)) = self.centre.zip(self.shape.as_ref()) else { return found };
        let enough = if self.is_any { self.count } else { usize::MAX };
        for scores in shape.scores(centre) {
            let range = ScoreRange {
                min: ScoreBound { score: scores.start, is_open: false },
                max: ScoreBound { score: scores.end, is_open: true },
            };
            for entry in set.range(set.ranks_by_score(&range)) {
                if found.len() >= enough {
                    break;
                }
                let point = Point::of_score(entry.score);
                if let Some(distance_m) = shape.distance_m(centre, point) {
                    let distance = distance_m / self.unit_m;
                    found.push(Found { member: entry.member.to_vec(), score: entry.score, point, distance });
                }
            }
        }
        if let Some(nearest_first) = self.order {
            found.sort_by(|one, other| {
                let order = one.distance.total_cmp(&other.distance);
                if nearest_first { order } else { order.reverse() }
            });
        }
        if self.count > 0 {
            found.truncate(self.count);
        }
        found
    }
}

impl Form {
    /// Whether its options may name a key that the result is kept behind.
    const fn may_keep(self) -> bool {
        matches!(self, Self::Radius { may_keep: true, .. })
    }
}

/// The point of a member, which word `at` names, of a set that is there.
fn member(call: &mut Call<'_, '_>, key: Key<'_>, at: usize) -> Result<Point, Error> {
    let hash_key = call.engine.keyspace.hash_key();
    let score = call.keys.get::<ZSet>(key)?.and_then(|set| set.score(&call.args[at], hash_key));
    let absent = || {
        let member = String::from_utf8_lossy(&call.args[at]);
        Error::text(format!("ERR member {member} does not exist"))
    };
    score.map(Point::of_score).ok_or_else(absent)
}

/// A point that was found.
struct Found {
    member: Vec<u8>,
    score: f64,
    point: Point,
    /// In the unit of the query.
    distance: f64,
}

fn search(call: &mut Call<'_, '_>, form: Form) -> Result<(), Error> {
    let source = call.key(if form == (Form::Search { keeps: true }) { 2 } else { 1 });
    let query = Query::read(call, form, source)?;
    let found = call.keys.get::<ZSet>(source)?.map_or_else(Vec::new, |set| query.find(set));
    let Some(target) = query.target else {
        reply_found(call.reply, &query, &found);
        return Ok(());
    };
    let (hash_key, limits) = (call.engine.keyspace.hash_key(), &call.settings.sorted_set);
    let mut kept = ZSet::new();
    for point in &found {
        let score = if query.keeps_distance { point.distance } else { point.score };
        let added = kept.add(&point.member, score, When::default(), hash_key, limits);
        added.expect("distances and scores of points are numbers");
    }
    let event = if form.may_keep() { "georadiusstore" } else { "geosearchstore" };
    store(call, target, kept, event);
    Ok(())
}

fn reply_found(reply: &mut Reply, query: &Query<'_>, found: &[Found]) {
    let more = [query.with_distance, query.with_score, query.with_point].into_iter().filter(|with| *with).count();
    reply.array(found.len());
    for point in found {
        if more > 0 {
            reply.array(more + 1);
        }
        reply.bulk(&point.member);
        if query.with_distance {
            reply_distance(reply, point.distance);
        }
        if query.with_score {
            #[expect(clippy::cast_possible_truncation, reason = "the scores of points are whole and have 52 bits")]
            reply.integer(point.score as i64);
        }
        if query.with_point {
            reply_point(reply, point.point);
        }
    }
}

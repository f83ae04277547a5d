//! Points on the earth as scores, and the search for those near another.
//!
//! A point is a cell of a grid: longitude and latitude are each cut in two 26 times, and the 52 bits that say which half was
//! taken, longitude and latitude in turn, are the score, which a double holds exactly. Cells that lie together have scores
//! that lie together, so an area is searched as at most nine ranges of scores: the cell of a coarser grid that has the
//! centre, and its neighbours. What is found there is measured.
//!
//! Follows Valkey to the bit where clients can see it: the grid ends at the latitudes of the Mercator projection, distances
//! are those of a great circle by the haversine formula, and a box is as wide as it says at each point's own latitude.

use std::ops::Range;

/// How often each coordinate is cut in two for a score.
const STEPS: u32 = 26;
const LONGITUDE_MAX: f64 = 180.0;
const LATITUDE_MAX: f64 = 85.051_128_78;
const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
const MERCATOR_MAX_M: f64 = 20_037_726.37;
/// The most that the sine of half the angle between two meridians is where they are taken for one.
const SAME_MERIDIAN: f64 = 1e-15;
const RADIANS_PER_DEGREE: f64 = std::f64::consts::PI / 180.0;
/// The letters of a geohash, five bits each.
const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
/// How many letters are told; the last is always the first of all, because 52 bits are ten letters and a bit.
const LETTERS_TOLD: usize = 11;

/// A point, in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// From -180 to 180.
    pub longitude: f64,
    /// From -85.05112878 to 85.05112878.
    pub latitude: f64,
}

impl Point {
    /// A point, if it is on the grid.
    #[must_use]
    pub fn new(longitude: f64, latitude: f64) -> Option<Self> {
        let is_inside = longitude.abs() <= LONGITUDE_MAX && latitude.abs() <= LATITUDE_MAX;
        is_inside.then_some(Self { longitude, latitude })
    }

    /// The score that stands for it.
    #[must_use]
    pub fn score(self) -> f64 {
        exact(Cell::of(self, STEPS, LATITUDE_MAX).bits)
    }

    /// The middle of the cell that a score stands for.
    #[must_use]
    pub fn of_score(score: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "any score has some cell")]
        let bits = score as u64;
        let area = Cell { bits, steps: STEPS }.area();
        let middle = |range: &Range<f64>, max: f64| (range.start.midpoint(range.end)).clamp(-max, max);
        Self { longitude: middle(&area.longitude, LONGITUDE_MAX), latitude: middle(&area.latitude, LATITUDE_MAX) }
    }

    /// The eleven letters of its geohash, in the usual grid, which goes to the poles.
    #[must_use]
    pub fn geohash(self) -> [u8; LETTERS_TOLD] {
        let bits = Cell::of(self, STEPS, 90.0).bits;
        let mut letters = [LETTERS[0]; LETTERS_TOLD];
        for (at, letter) in (1_u32..).zip(&mut letters[..LETTERS_TOLD - 1]) {
            let five = (bits >> (2 * STEPS - 5 * at)) & 31;
            *letter = LETTERS[usize::try_from(five).expect("five bits were kept")];
        }
        letters
    }

    /// How far another is, in metres.
    #[must_use]
    pub fn distance_m(self, other: Self) -> f64 {
        let half = |one: f64, other: f64| ((other - one) / 2.0).sin();
        let (longitude, other_longitude) = (self.longitude * RADIANS_PER_DEGREE, other.longitude * RADIANS_PER_DEGREE);
        let v = half(longitude, other_longitude);
        // On one meridian, to some nanometres.
        if v.abs() <= SAME_MERIDIAN {
            return latitude_distance_m(self.latitude, other.latitude);
        }
        let (latitude, other_latitude) = (self.latitude * RADIANS_PER_DEGREE, other.latitude * RADIANS_PER_DEGREE);
        let u = half(latitude, other_latitude);
        let a = u * u + latitude.cos() * other_latitude.cos() * v * v;
        2.0 * EARTH_RADIUS_M * a.sqrt().asin()
    }
}

fn latitude_distance_m(one: f64, other: f64) -> f64 {
    EARTH_RADIUS_M * (other * RADIANS_PER_DEGREE - one * RADIANS_PER_DEGREE).abs()
}

/// A number of at most 53 bits.
fn exact(bits: u64) -> f64 {
    bits as f64
}

/// What points are looked for in, in metres.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// Up to this far from the centre.
    Circle {
        /// How far.
        radius_m: f64,
    },
    /// Half of it on each side of the centre.
    Box {
        /// From west to east.
        width_m: f64,
        /// From south to north.
        height_m: f64,
    },
    /// Between straight lines on the map, from each corner to the next and from the last to the first. Where they cross, what
    /// they enclose twice is outside. None crosses the line of 180 degrees.
    Polygon {
        /// At least three.
        corners: Vec<Point>,
    },
}

/// The middle of points: where their sum points to, as vectors from the middle of the earth.
#[must_use]
pub fn middle(points: &[Point]) -> Point {
    let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
    for point in points {
        let (longitude, latitude) = (point.longitude * RADIANS_PER_DEGREE, point.latitude * RADIANS_PER_DEGREE);
        x += latitude.cos() * longitude.cos();
        y += latitude.cos() * longitude.sin();
        z += latitude.sin();
    }
    let (longitude, latitude) = (f64::atan2(y, x), f64::atan2(z, (x * x + y * y).sqrt()));
    Point { longitude: longitude / RADIANS_PER_DEGREE, latitude: latitude / RADIANS_PER_DEGREE }
}

/// Whether a line from the point to the west crosses the lines between corners an odd number of times.
fn is_enclosed(point: Point, corners: &[Point]) -> bool {
    let ends = corners.iter().zip(corners.iter().cycle().skip(corners.len().saturating_sub(1)));
    let is_crossed = |(one, other): (&Point, &Point)| {
        (one.latitude > point.latitude) != (other.latitude > point.latitude)
            && point.longitude
                < (other.longitude - one.longitude) * (point.latitude - one.latitude) / (other.latitude - one.latitude)
                    + one.longitude
    };
    ends.filter(|line| is_crossed(*line)).count() % 2 == 1
}

impl Shape {
    /// How far a point is from the centre, if it is inside.
    #[must_use]
    pub fn distance_m(&self, centre: Point, point: Point) -> Option<f64> {
        match self {
            Self::Polygon { corners } => is_enclosed(point, corners).then(|| centre.distance_m(point)),
            Self::Circle { radius_m } => Some(centre.distance_m(point)).filter(|distance| distance <= radius_m),
            Self::Box { width_m, height_m } => {
                let beside = Point { longitude: centre.longitude, latitude: point.latitude };
                let is_inside = latitude_distance_m(point.latitude, centre.latitude) <= height_m / 2.0
                    && point.distance_m(beside) <= width_m / 2.0;
                is_inside.then(|| centre.distance_m(point))
            }
        }
    }

    /// How far the furthest point inside is.
    fn reach_m(&self, centre: Point) -> f64 {
        match self {
            Self::Circle { radius_m } => *radius_m,
            Self::Box { width_m, height_m } => {
                let (width_m, height_m) = (width_m / 2.0, height_m / 2.0);
                (width_m * width_m + height_m * height_m).sqrt()
            }
            Self::Polygon { .. } => {
                let Area { longitude, latitude } = self.bounds(centre);
                let corners = [longitude.start, longitude.end]
                    .into_iter()
                    .flat_map(|longitude| [latitude.start, latitude.end].map(|latitude| Point { longitude, latitude }));
                corners.map(|corner| centre.distance_m(corner)).fold(0.0, f64::max)
            }
        }
    }

    /// The least area of degrees that has it.
    fn bounds(&self, centre: Point) -> Area {
        let (width_m, height_m) = match self {
            Self::Circle { radius_m } => (*radius_m, *radius_m),
            Self::Box { width_m, height_m } => (width_m / 2.0, height_m / 2.0),
            Self::Polygon { corners } => return Area::around(corners),
        };
        let degrees = |radians: f64| radians / RADIANS_PER_DEGREE;
        let up = degrees(height_m / EARTH_RADIUS_M);
        // It is widest in degrees on the side of the nearer pole.
        let widest = if centre.latitude < 0.0 { centre.latitude - up } else { centre.latitude + up };
        let aside = degrees(width_m / EARTH_RADIUS_M / (widest * RADIANS_PER_DEGREE).cos());
        Area {
            longitude: centre.longitude - aside..centre.longitude + aside,
            latitude: centre.latitude - up..centre.latitude + up,
        }
    }

    /// The scores, up to nine ranges, among which all points inside have theirs, the centre's cell first.
    #[must_use]
    pub fn scores(&self, centre: Point) -> Vec<Range<f64>> {
        let bounds = self.bounds(centre);
        let mut steps = steps_for(self.reach_m(centre), centre.latitude);
        // The middle of a polygon may be nearer to a pole than the grid goes.
        let centre = Point { latitude: centre.latitude.clamp(-LATITUDE_MAX, LATITUDE_MAX), ..centre };
        let cell = Cell::of(centre, steps, LATITUDE_MAX);
        let is_small = cell.moved(0, 1).area().latitude.end < bounds.latitude.end
            || cell.moved(0, -1).area().latitude.start > bounds.latitude.start
            || cell.moved(1, 0).area().longitude.end < bounds.longitude.end
            || cell.moved(-1, 0).area().longitude.start > bounds.longitude.start;
        if steps > 1 && is_small {
            steps -= 1;
        }
        let cell = Cell::of(centre, steps, LATITUDE_MAX);
        let area = cell.area();
        let is_needed = |(east, north): (i8, i8)| {
            steps < 2
                || !(north < 0 && area.latitude.start < bounds.latitude.start
                    || north > 0 && area.latitude.end > bounds.latitude.end
                    || east < 0 && area.longitude.start < bounds.longitude.start
                    || east > 0 && area.longitude.end > bounds.longitude.end)
        };
        let around = [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let around = around.into_iter().filter(|way| is_needed(*way)).map(|(east, north)| cell.moved(east, north));
        let mut cells = vec![cell];
        for next in around {
            // In the coarsest grid a cell has the same neighbour on both sides.
            if cells.len() == 1 || cells.last() != Some(&next) {
                cells.push(next);
            }
        }
        cells.into_iter().map(Cell::scores).collect()
    }
}

/// How fine a grid is in which nine cells have everything so near.
fn steps_for(reach_m: f64, latitude: f64) -> u32 {
    if reach_m == 0.0 {
        return STEPS;
    }
    let (mut reach_m, mut steps) = (reach_m, 1_u32);
    while reach_m < MERCATOR_MAX_M {
        reach_m *= 2.0;
        steps += 1;
    }
    // Cells are narrower near the poles.
    let coarser = 2 + u32::from(latitude.abs() > 66.0) + u32::from(latitude.abs() > 80.0);
    steps.saturating_sub(coarser).clamp(1, STEPS)
}

/// Ranges of degrees.
#[derive(Debug, Clone, PartialEq)]
struct Area {
    longitude: Range<f64>,
    latitude: Range<f64>,
}

impl Area {
    /// The least that has all points.
    fn around(points: &[Point]) -> Self {
        let span = |degrees: fn(&Point) -> f64| {
            let (least, most) = (f64::INFINITY, f64::NEG_INFINITY);
            let ends = |(least, most): (f64, f64), at: f64| (least.min(at), most.max(at));
            let (least, most) = points.iter().map(degrees).fold((least, most), ends);
            least..most
        };
        Self { longitude: span(|point| point.longitude), latitude: span(|point| point.latitude) }
    }
}

/// A cell of the grid in which each coordinate is cut in two so many times: longitude in the odd bits, latitude in the even.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    bits: u64,
    /// From 1 to 26.
    steps: u32,
}

const EVEN: u64 = 0x5555_5555_5555_5555;

impl Cell {
    fn of(point: Point, steps: u32, latitude_max: f64) -> Self {
        let place = |degrees: f64, max: f64| {
            let part = (degrees - -max) / (max - -max) * exact(1 << steps);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 2^26")]
            let place = part as u32;
            spread(place)
        };
        let bits = place(point.latitude, latitude_max) | place(point.longitude, LONGITUDE_MAX) << 1;
        Self { bits, steps }
    }

    fn area(self) -> Area {
        let range = |place: u32, max: f64| {
            let edge = |place: f64| -max + (place / exact(1 << self.steps)) * (max - -max);
            edge(f64::from(place))..edge(f64::from(place) + 1.0)
        };
        Area {
            longitude: range(gather(self.bits >> 1), LONGITUDE_MAX),
            latitude: range(gather(self.bits), LATITUDE_MAX),
        }
    }

    /// The neighbour that is so many cells to the east and to the north; the grid has no edge.
    fn moved(self, east: i8, north: i8) -> Self {
        let shift = 64 - 2 * self.steps;
        let step = |own: u64, way: i8| {
            // Ones in the bits between carry from one of its own bits to the next.
            let (kept, filled) = (self.bits & own, !own >> shift);
            let moved = match way {
                0 => kept,
                1.. => kept.wrapping_add(filled.wrapping_add(1)),
                _ => (kept | filled).wrapping_sub(filled.wrapping_add(1)),
            };
            moved & own >> shift
        };
        Self { bits: step(!EVEN, east) | step(EVEN, north), steps: self.steps }
    }

    /// The scores of all points inside.
    fn scores(self) -> Range<f64> {
        let shift = 2 * (STEPS - self.steps);
        exact(self.bits << shift)..exact((self.bits + 1) << shift)
    }
}

/// The bits of a number, with a zero above each.
fn spread(number: u32) -> u64 {
    (0..u32::BITS).fold(0, |bits, at| bits | u64::from(number >> at & 1) << (2 * at))
}

/// Every second bit, from the lowest on.
fn gather(bits: u64) -> u32 {
    (0..u32::BITS).fold(0, |number, at| number | u32::from(bits >> (2 * at) & 1 == 1) << at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::draws::Draws;

    fn any(draws: &mut Draws) -> Point {
        let mut part = || (draws.next() >> 11) as f64 / exact(1 << 53) * 2.0 - 1.0;
        Point::new(part() * LONGITUDE_MAX, part() * LATITUDE_MAX).unwrap()
    }

    #[test]
    fn a_score_is_within_half_a_metre() {
        let mut draws = Draws(1);
        for _ in 0..10_000 {
            let point = any(&mut draws);
            let back = Point::of_score(point.score());
            assert!(point.distance_m(back) < 0.6, "{point:?} {back:?}");
            assert_eq!(back.score(), point.score());
            assert_eq!(gather(spread(draws.next() as u32 & 0xffff)) >> 16, 0);
        }
    }

    #[test]
    fn what_valkey_shows() {
        let palermo = Point::new(13.361_389, 38.115_556).unwrap();
        let catania = Point::new(15.087_269, 37.502_669).unwrap();
        assert_eq!(palermo.score(), 3_479_099_956_230_698.0);
        assert_eq!(&Point::of_score(palermo.score()).geohash(), b"sqc8b49rny0");
        let (one, other) = (Point::of_score(palermo.score()), Point::of_score(catania.score()));
        assert!((one.distance_m(other) - 166_274.151_6).abs() < 0.001);
        assert_eq!(Point::new(180.1, 0.0), None);
        assert_eq!(Point::new(0.0, 85.06), None);
        assert_eq!(Point::new(f64::NAN, 0.0), None);
    }

    #[test]
    fn ranges_have_all_that_is_inside() {
        let mut draws = Draws(2);
        for _ in 0..3_000 {
            let centre = any(&mut draws);
            let size = 10.0_f64.powi(i32::from(draws.byte() % 7));
            let degrees = size / 111_000.0;
            let corner = |east: f64, north: f64| Point {
                longitude: (centre.longitude + east * degrees).clamp(-LONGITUDE_MAX, LONGITUDE_MAX),
                latitude: (centre.latitude + north * degrees).clamp(-LATITUDE_MAX, LATITUDE_MAX),
            };
            let (shape, centre) = match draws.byte() % 3 {
                0 => (Shape::Circle { radius_m: size }, centre),
                1 => (Shape::Box { width_m: size, height_m: 2.0 * size }, centre),
                _ => {
                    let corners = vec![corner(-0.5, -1.0), corner(1.0, -0.25), corner(0.25, 0.5)];
                    let centre = middle(&corners);
                    (Shape::Polygon { corners }, centre)
                }
            };
            let ranges = shape.scores(centre);
            assert!(ranges.len() <= 9);
            let mut near = |at: f64| at + ((draws.next() >> 11) as f64 / exact(1 << 53) - 0.5) * 2.0 * degrees;
            let Some(point) = Point::new(near(centre.longitude), near(centre.latitude)) else { continue };
            if shape.distance_m(centre, point).is_some() && centre.latitude.abs() < 60.0 {
                let score = point.score();
                assert!(ranges.iter().any(|range| range.contains(&score)), "{shape:?} {centre:?} {point:?}");
            }
        }
    }

    #[test]
    fn what_is_inside_a_polygon() {
        let at = |longitude: f64, latitude: f64| Point::new(longitude, latitude).unwrap();
        // A square with a notch in its upper side.
        let corners = vec![at(0.0, 0.0), at(4.0, 0.0), at(4.0, 4.0), at(2.0, 1.0), at(0.0, 4.0)];
        let centre = middle(&corners);
        assert!((centre.longitude - 2.0).abs() < 0.01 && (centre.latitude - 1.8).abs() < 0.01, "{centre:?}");
        let shape = Shape::Polygon { corners };
        for (longitude, latitude, is_inside) in [
            (2.0, 0.5, true),
            (0.5, 2.0, true),
            (3.5, 3.0, true),
            (2.0, 1.5, false),
            (5.0, 0.5, false),
            (2.0, -0.1, false),
        ] {
            let found = shape.distance_m(centre, at(longitude, latitude));
            assert_eq!(found.is_some(), is_inside, "{longitude} {latitude}");
            assert!(found.is_none_or(|metres| metres == centre.distance_m(at(longitude, latitude))));
        }
        // Two triangles that overlap: what both have is outside.
        let crossed = [at(0.0, 0.0), at(4.0, 0.0), at(2.0, 3.0), at(0.0, 0.0), at(4.0, 0.0), at(2.0, 1.0)];
        assert!(is_enclosed(at(2.0, 2.0), &crossed) && !is_enclosed(at(2.0, 0.5), &crossed));
    }
}

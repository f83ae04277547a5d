//! What is told of the figures: means, the faster hash, shares of networks, of copies and of the limit.

use ashlar_erasure::{Geometry, Kernel, Stores};

use super::case::{Case, Hash, Subject, Walk, Work};
use super::measure::Figure;
use crate::bench::report::Row;

/// Speeds of network cards, Gbit/s.
pub const NETWORKS_GBIT: [f64; 3] = [25.0, 100.0, 400.0];

const GBIT_PER_GBYTE: f64 = 8.0;

/// Names of all further columns of a row, in their order.
pub const COLUMNS: [&str; 8] =
    ["best", "gbit_per_s", "of_25gbit", "of_100gbit", "of_400gbit", "cores_for_400gbit", "of_copy", "of_xor"];

/// The figures and what follows from them: behind the decodes of one kind their mean, behind both hashes the faster.
/// A mean is there only if every count of lost shards was measured.
#[must_use]
pub fn complete(measured: &[Figure]) -> Vec<Figure> {
    let mut all = Vec::with_capacity(measured.len());
    for figure in measured {
        all.push(*figure);
        let Subject::Stripes(case) = figure.subject else { continue };
        match case.work {
            Work::Decode(Some(lost)) if lost == case.geometry.parity() => {
                all.extend(mean(measured, case, lost));
            }
            Work::EncodeHash(Some(Hash::Crc64Nvme)) => {
                let other = Case { work: Work::EncodeHash(Some(Hash::Xxh3)), ..case };
                let other = find(measured, &Subject::Stripes(other));
                let subject = Subject::Stripes(Case { work: Work::EncodeHash(None), ..case });
                let faster = other.map(|other| if other.median > figure.median { other } else { figure });
                all.extend(faster.map(|faster| Figure { subject, ..*faster }));
            }
            _ => {}
        }
    }
    all
}

/// The speed of decoding as many blocks with each count of lost shards.
fn mean(measured: &[Figure], case: Case, most: usize) -> Option<Figure> {
    let of_count = |lost| find(measured, &Subject::Stripes(Case { work: Work::Decode(Some(lost)), ..case }));
    let figures: Vec<&Figure> = (1..=most).map(of_count).collect::<Option<_>>()?;
    let harmonic =
        |speed: fn(&Figure) -> f64| most as f64 / figures.iter().map(|figure| 1.0 / speed(figure)).sum::<f64>();
    let subject = Subject::Stripes(Case { work: Work::Decode(None), ..case });
    Some(Figure { subject, median: harmonic(|figure| figure.median), best: harmonic(|figure| figure.best) })
}

fn find<'a>(figures: &'a [Figure], subject: &Subject) -> Option<&'a Figure> {
    figures.iter().find(|figure| figure.subject == *subject)
}

/// The copy with so many threads, the faster way, GB/s.
#[must_use]
pub fn copy_speed(figures: &[Figure], threads: usize) -> Option<f64> {
    let copies = figures
        .iter()
        .filter(|figure| matches!(figure.subject, Subject::Copy { .. }) && figure.subject.threads() == threads);
    copies.map(|figure| figure.median).max_by(f64::total_cmp)
}

/// The limit of a case that reads M shards and writes K, GB/s.
#[must_use]
pub fn limit(figures: &[Figure], case: &Case) -> Option<f64> {
    let writes_all = match case.work {
        Work::Encode => true,
        Work::Decode(Some(lost)) => lost == case.geometry.parity(),
        Work::Xor | Work::EncodeHash(_) | Work::Decode(None) => false,
    };
    let is_its_limit = |subject: &Subject| match subject {
        Subject::Stripes(other) => {
            let same = (other.walk, other.geometry, other.threads, other.stores);
            other.work == Work::Xor && same == (case.walk, case.geometry, case.threads, case.stores)
        }
        Subject::Copy { .. } => false,
    };
    let limit = figures.iter().find(|figure| writes_all && is_its_limit(&figure.subject));
    limit.map(|figure| figure.median)
}

/// The rows that are printed, for a machine of `cores` cores.
#[must_use]
pub fn rows(figures: &[Figure], cores: usize) -> Vec<Row> {
    figures.iter().map(|figure| row(figures, figure, cores)).collect()
}

fn row(figures: &[Figure], figure: &Figure, cores: usize) -> Row {
    let [best, gbit_per_s, of_25, of_100, of_400, cores_for_400, of_copy, of_xor] = COLUMNS;
    let row = Row::new(figure.subject.to_string(), figure.median, "GB/s").with(best, figure.best);
    let Subject::Stripes(case) = figure.subject else { return row };
    if case.work == Work::Xor {
        return row;
    }
    let gbit = figure.median * GBIT_PER_GBYTE;
    let [slow, middle, fast] = NETWORKS_GBIT;
    let busy = case.threads.min(cores) as f64;
    let row = row
        .with(gbit_per_s, gbit)
        .with(of_25, gbit / slow)
        .with(of_100, gbit / middle)
        .with(of_400, gbit / fast)
        .with(cores_for_400, fast / (gbit / busy));
    let row = match copy_speed(figures, case.threads) {
        Some(copy) => row.with(of_copy, figure.median / copy),
        None => row,
    };
    match limit(figures, &case) {
        Some(limit) => row.with(of_xor, figure.median / limit),
        None => row,
    }
}

/// The speed of one line of the chart, GB/s; decode is the mean over the counts that were measured.
#[must_use]
pub fn charted(
    figures: &[Figure],
    work: Work,
    walk: Walk,
    geometry: Geometry,
    kernel: Kernel,
    threads: usize,
) -> Option<f64> {
    let wanted = |figure: &&Figure| match figure.subject {
        Subject::Stripes(case) => {
            let kind = match (work, case.work) {
                (Work::Decode(None), Work::Decode(Some(_))) => true,
                (work, other) => work == other,
            };
            let same = (case.walk, case.geometry, case.kernel, case.threads) == (walk, geometry, kernel, threads);
            kind && same && case.stores == usual(&case)
        }
        Subject::Copy { .. } => false,
    };
    let speeds: Vec<f64> = figures.iter().filter(wanted).map(|figure| figure.median).collect();
    let times: f64 = speeds.iter().map(|speed| 1.0 / speed).sum();
    (!speeds.is_empty()).then(|| speeds.len() as f64 / times)
}

fn usual(case: &Case) -> Stores {
    super::case::usual_stores(case.walk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::yardstick::Route;

    fn case(work: Work, stores: Stores) -> Subject {
        let geometry = Geometry::new(4, 2).unwrap();
        Subject::Stripes(Case { work, walk: Walk::Cold, geometry, threads: 4, kernel: Kernel::best(), stores })
    }

    fn measured() -> Vec<Figure> {
        [
            (Subject::Copy { route: Route::Cached, threads: 4 }, 10.0),
            (Subject::Copy { route: Route::Streaming, threads: 4 }, 20.0),
            (Subject::Copy { route: Route::Streaming, threads: 1 }, 99.0),
            (case(Work::Xor, Stores::Streaming), 50.0),
            (case(Work::Encode, Stores::Streaming), 40.0),
            (case(Work::Encode, Stores::Cached), 30.0),
            (case(Work::EncodeHash(Some(Hash::Xxh3)), Stores::Streaming), 8.0),
            (case(Work::EncodeHash(Some(Hash::Crc64Nvme)), Stores::Streaming), 9.0),
            (case(Work::Decode(Some(1)), Stores::Streaming), 30.0),
            (case(Work::Decode(Some(2)), Stores::Streaming), 60.0),
        ]
        .map(|(subject, median)| Figure { subject, median, best: median + 1.0 })
        .to_vec()
    }

    #[test]
    fn means_and_the_faster_hash() {
        let all = complete(&measured());
        let value =
            |name: &str| all.iter().find(|figure| figure.subject.to_string() == name).map(|figure| figure.median);
        assert_eq!(value("decode/cold/4+2/t4").map(f64::round), Some(40.0));
        assert_eq!(value("encode+hash/cold/4+2/t4"), Some(9.0));
        let lacking: Vec<Figure> = measured().into_iter().filter(|figure| figure.median != 30.0).collect();
        assert_eq!(complete(&lacking).len(), lacking.len() + 1, "no mean of some counts only");
    }

    #[test]
    fn shares() {
        let rows = rows(&complete(&measured()), 2);
        let row = |name: &str| rows.iter().find(|row| row.case == name).unwrap();
        let expected = [41.0, 320.0, 12.8, 3.2, 0.8, 2.5, 2.0, 0.8];
        let expected: Vec<(&str, f64)> = COLUMNS.into_iter().zip(expected).collect();
        assert_eq!(row("encode/cold/4+2/t4").columns, expected);
        let names = |name: &str| row(name).columns.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!(names("encode/cold/4+2/t4/cached"), COLUMNS[..7], "its limit was not measured");
        assert_eq!(names("decode/cold/4+2/t4/lost2"), COLUMNS);
        assert_eq!(names("decode/cold/4+2/t4/lost1"), COLUMNS[..7], "it writes less than the limit");
        assert_eq!(names("copy/memcpy/t4"), ["best"]);
        assert_eq!(names("xor/cold/4+2/t4"), ["best"]);
    }
}

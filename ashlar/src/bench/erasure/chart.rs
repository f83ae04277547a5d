//! The figures as a picture: SVG with text as text, readable on light and on dark pages.
//!
//! One panel for each geometry, a row of panels for each walk: speed over threads, encode and decode (the mean over the
//! counts of lost shards), beside what the machine copies, the limit of the same reads and writes, and what networks
//! carry. Both axes double from mark to mark, so that speed which grows with the threads is a straight slope. Only the usual
//! stores and the fastest kernel of the study are drawn.

use std::fmt::Write as _;

use ashlar_erasure::{Geometry, Kernel};

use super::Study;
use super::case::{Walk, Work};
use super::figures::{NETWORKS_GBIT, charted, copy_speed};
use super::measure::Figure;

/// Margins of the picture and the place of one panel, in the picture's units.
const MARGIN: f64 = 20.0;
const HEAD_HEIGHT: f64 = 92.0;
const FOOT_HEIGHT: f64 = 10.0;
const PANEL_WIDTH: f64 = 312.0;
const PANEL_HEIGHT: f64 = 250.0;
/// From a panel's place to its axes; networks are named on the right.
const LEFT: f64 = 30.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 40.0;
/// Room for the legend.
const WIDTH_MIN: f64 = 800.0;
/// The width of a letter of the legend, generously.
const LETTER_WIDTH: f64 = 6.4;

/// Room for a figure above the greatest speed, in doublings.
const FIGURE_ROOM: f64 = 0.3;

const GBYTE_PER_GBIT: f64 = 0.125;

/// Plain colours first, for whatever draws SVG without knowing of dark pages.
const STYLE: &str = "
text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:12px;fill:#1f2328;stroke:#ffffff;stroke-width:3px;stroke-linejoin:round;paint-order:stroke}
.title{font-size:17px;font-weight:600}
.panel{font-size:13px;font-weight:600}
.small{font-size:11px;fill:#59636e}
.page{fill:#ffffff}
polyline{fill:none;stroke-width:2}
.grid{stroke:#d8dee4;stroke-width:1}
.axis{stroke:#59636e;stroke-width:1}
.network{stroke:#59636e;stroke-width:1;stroke-dasharray:2 3}
.encode{stroke:#0757c0}
.decode{stroke:#b33c00}
.copy{stroke:#116329;stroke-dasharray:7 4}
.limit{stroke:#7d4bc4;stroke-dasharray:2 3}
circle{fill:#ffffff;stroke-width:2;stroke-dasharray:none}
text.encode{fill:#0757c0;stroke:#ffffff;font-size:11px}
text.decode{fill:#b33c00;stroke:#ffffff;font-size:11px}
@media (prefers-color-scheme:dark){
text{fill:#f0f6fc;stroke:#0d1117}
.small{fill:#9198a1}
.page{fill:#0d1117}
.grid{stroke:#30363d}
.axis,.network{stroke:#9198a1}
.encode{stroke:#58a6ff}
.decode{stroke:#ff9b57}
.copy{stroke:#56d364}
.limit{stroke:#c29bff}
circle{fill:#0d1117}
text.encode{fill:#58a6ff;stroke:#0d1117}
text.decode{fill:#ff9b57;stroke:#0d1117}
}
";

/// One line of a panel.
struct Line {
    /// Its class in the style, and the name in the legend.
    class: &'static str,
    name: &'static str,
    /// Speed for each number of threads, GB/s; `None` where it was not measured.
    speeds: Vec<Option<f64>>,
}

/// A panel: one geometry in one walk.
struct Panel {
    title: String,
    lines: Vec<Line>,
}

/// The whole picture; `subtitle` says where and on what it was measured.
#[must_use]
pub fn svg(study: &Study, figures: &[Figure], subtitle: &str) -> String {
    let mut threads = study.threads.clone();
    threads.sort_unstable();
    threads.dedup();
    let rows: Vec<Vec<Panel>> = study.walks.iter().map(|&walk| panels(study, figures, walk, &threads)).collect();
    let width = (2.0 * MARGIN + study.geometries.len() as f64 * PANEL_WIDTH).max(WIDTH_MIN);
    let height = HEAD_HEIGHT + rows.len() as f64 * PANEL_HEIGHT + FOOT_HEIGHT;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" role=\"img\">\n<title>Reed-Solomon: GB/s of data by threads</title>\n\
         <style>{STYLE}</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n"
    );
    text(&mut out, MARGIN, 28.0, "title", "start", "Reed-Solomon: GB/s of data by threads");
    text(&mut out, MARGIN, 47.0, "small", "start", subtitle);
    legend(&mut out, &rows);
    for (row, panels) in rows.iter().enumerate() {
        let top = HEAD_HEIGHT + row as f64 * PANEL_HEIGHT;
        let marks = marks(panels);
        for (column, panel) in panels.iter().enumerate() {
            let frame = Frame { left: MARGIN + column as f64 * PANEL_WIDTH, top, marks: &marks, threads: &threads };
            frame.draw(&mut out, panel);
        }
    }
    out.push_str("</svg>\n");
    out
}

fn panels(study: &Study, figures: &[Figure], walk: Walk, threads: &[usize]) -> Vec<Panel> {
    study.geometries.iter().map(|&geometry| panel(study, figures, walk, geometry, threads)).collect()
}

fn panel(study: &Study, figures: &[Figure], walk: Walk, geometry: Geometry, threads: &[usize]) -> Panel {
    let kernel = study.best_kernel();
    let line = |class, name, speed: &dyn Fn(usize) -> Option<f64>| Line {
        class,
        name,
        speeds: threads.iter().map(|&threads| speed(threads)).collect(),
    };
    let of = |work, kernel: Kernel| move |threads| charted(figures, work, walk, geometry, kernel, threads);
    let lines = vec![
        line("copy", "copy", &|threads| copy_speed(figures, threads)),
        line("limit", "limit: exclusive-or only", &of(Work::Xor, study.best_kernel())),
        line("decode", "decode (mean over lost shards)", &of(Work::Decode(None), kernel)),
        line("encode", "encode", &of(Work::Encode, kernel)),
    ];
    let walk = match walk {
        Walk::Cold => "all blocks in turn",
        Walk::Hot => "one block again and again",
        Walk::HotPadded => "one block again and again, padded",
    };
    Panel { title: format!("{geometry}, {walk}"), lines }
}

/// The marks of the axis of speeds, GB/s: powers of two around all that is drawn, and room above it for figures.
fn marks(panels: &[Panel]) -> Vec<f64> {
    let lines = panels.iter().flat_map(|panel| &panel.lines);
    let speeds = lines.flat_map(|line| line.speeds.iter().flatten().copied());
    let powers = speeds.chain(NETWORKS_GBIT.map(|gbit| gbit * GBYTE_PER_GBIT)).map(f64::log2);
    let (low, high) = powers.fold((f64::MAX, f64::MIN), |(low, high), power| (low.min(power), high.max(power)));
    let above = |power: &f64| Some(power + 1.0);
    let powers =
        std::iter::successors(Some(low.floor()), above).take_while(|power| *power < (high + FIGURE_ROOM).ceil() + 0.5);
    powers.map(f64::exp2).collect()
}

fn legend(out: &mut String, rows: &[Vec<Panel>]) {
    let drawn = rows.iter().flatten().flat_map(|panel| &panel.lines);
    let mut names: Vec<(&str, &str)> = Vec::new();
    for line in drawn.filter(|line| line.speeds.iter().any(Option::is_some)) {
        if !names.contains(&(line.class, line.name)) {
            names.push((line.class, line.name));
        }
    }
    names.reverse();
    names.push(("network", "network cards"));
    let mut at = MARGIN;
    for (class, name) in names {
        path(out, class, &[(at, 68.0), (at + 26.0, 68.0)]);
        text(out, at + 32.0, 72.0, "", "start", name);
        at += 32.0 + name.len() as f64 * LETTER_WIDTH + 14.0;
    }
}

/// Where a panel stands and what its axes mean.
struct Frame<'a> {
    left: f64,
    top: f64,
    /// Doubling; at least two.
    marks: &'a [f64],
    threads: &'a [usize],
}

impl Frame<'_> {
    fn x(&self, index: usize) -> f64 {
        let width = PANEL_WIDTH - LEFT - RIGHT;
        self.left + LEFT + width * (index as f64 + 0.5) / self.threads.len().max(1) as f64
    }

    fn y(&self, speed: f64) -> f64 {
        let height = PANEL_HEIGHT - TOP - BOTTOM;
        let (low, high) = (self.low().log2(), self.marks.last().copied().unwrap_or(1.0).log2());
        self.top + TOP + height * (high - speed.log2()) / (high - low).max(1.0)
    }

    fn low(&self) -> f64 {
        self.marks.first().copied().unwrap_or(1.0)
    }

    fn draw(&self, out: &mut String, panel: &Panel) {
        let (from, to) = (self.left + LEFT, self.left + PANEL_WIDTH - RIGHT);
        text(out, from, self.top + 22.0, "panel", "start", &panel.title);
        for (index, mark) in self.marks.iter().enumerate() {
            let y = self.y(*mark);
            path(out, if index == 0 { "axis" } else { "grid" }, &[(from, y), (to, y)]);
            text(out, from - 6.0, y + 4.0, "small", "end", &mark.to_string());
        }
        for gbit in NETWORKS_GBIT {
            let y = self.y(gbit * GBYTE_PER_GBIT);
            path(out, "network", &[(from, y), (to, y)]);
            text(out, to + 4.0, y + 4.0, "small", "start", &format!("{gbit} Gbit/s"));
        }
        for (index, threads) in self.threads.iter().enumerate() {
            text(out, self.x(index), self.y(self.low()) + 16.0, "small", "middle", &threads.to_string());
        }
        let middle = f64::midpoint(from, to);
        text(out, middle, self.y(self.low()) + 31.0, "small", "middle", "threads");
        for line in &panel.lines {
            self.line(out, line);
        }
        self.figures(out, panel);
    }

    fn line(&self, out: &mut String, line: &Line) {
        let places = line.speeds.iter().enumerate();
        let places = places.filter_map(|(index, speed)| speed.map(|speed| (self.x(index), self.y(speed))));
        let places: Vec<(f64, f64)> = places.collect();
        path(out, line.class, &places);
        for (x, y) in &places {
            write!(out, "<circle class=\"{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>", line.class)
                .expect("memory takes text");
        }
        out.push('\n');
    }

    /// Speeds in figures: of encode and decode, the faster one's above its mark and the slower one's below.
    fn figures(&self, out: &mut String, panel: &Panel) {
        let named = panel.lines.iter().filter(|line| ["encode", "decode"].contains(&line.class));
        for index in 0..self.threads.len() {
            let speeds = named.clone().filter_map(|line| Some((line.speeds[index]?, line.class)));
            let mut speeds: Vec<(f64, &str)> = speeds.collect();
            speeds.sort_by(|(one, _), (other, _)| other.total_cmp(one));
            for ((speed, class), offset) in speeds.into_iter().zip([-8.0, 17.0]) {
                let figure = if speed < 9.95 { format!("{speed:.1}") } else { format!("{speed:.0}") };
                text(out, self.x(index), self.y(speed) + offset, class, "middle", &figure);
            }
        }
    }
}

fn path(out: &mut String, class: &str, points: &[(f64, f64)]) {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    if points.len() > 1 {
        writeln!(out, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" ")).expect("memory takes text");
    }
}

fn text(out: &mut String, x: f64, y: f64, class: &str, anchor: &str, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{content}</text>")
        .expect("memory takes text");
}

#[cfg(test)]
mod tests {
    use super::super::{run, tests::small};
    use super::*;

    /// Checks tags and returns the names of all elements: every one is closed in its order, nothing is left unescaped.
    fn elements(text: &str) -> Vec<String> {
        let (mut open, mut all, mut rest) = (Vec::new(), Vec::new(), text);
        while let Some(start) = rest.find('<') {
            assert!(!rest[..start].contains('>'), "a stray > in {}", &rest[..start]);
            let end = rest[start..].find('>').expect("tags end") + start;
            let tag = &rest[start + 1..end];
            let name = tag.trim_matches('/').split(' ').next().unwrap().to_owned();
            assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
            } else {
                all.push(name.clone());
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
            rest = &rest[end + 1..];
        }
        assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
        all
    }

    #[test]
    fn is_well_formed_and_shows_all() {
        let study = small();
        let results = run(&study, |_| {}).unwrap();
        let picture = svg(&study, &results.figures, "CPU <of & by> a test");
        let elements = elements(&picture);
        let count = |name: &str| elements.iter().filter(|element| *element == name).count();
        assert_eq!((elements[0].as_str(), count("svg"), count("style")), ("svg", 1, 1));
        // Four lines a panel, two geometries, two walks, two numbers of threads.
        assert_eq!(count("circle"), 4 * 2 * 2 * 2);
        assert!(picture.contains("CPU &lt;of &amp; by&gt; a test") && !picture.contains("NaN"));
        let fewer = Study { only: Some("encode/cold".into()), ..study };
        let picture = svg(&fewer, &results.figures[..0], "");
        assert!(!picture.contains("<circle") && !picture.contains("NaN"), "an empty picture is one too");
    }

    #[test]
    fn marks_hold_all_that_is_drawn() {
        for (speeds, expected) in [
            (vec![Some(5.0), None, Some(30.0)], vec![2.0, 4.0, 8.0, 16.0, 32.0, 64.0]),
            (vec![Some(0.3), Some(64.0)], vec![0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]),
            (vec![], vec![2.0, 4.0, 8.0, 16.0, 32.0, 64.0]),
            (vec![Some(70.0)], vec![2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]),
        ] {
            let panel = Panel { title: String::new(), lines: vec![Line { class: "encode", name: "encode", speeds }] };
            assert_eq!(marks(&[panel]), expected);
        }
    }
}

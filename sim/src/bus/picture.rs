//! The picture: recovery against the share of primaries that died, with the anchor's published curve beside it.
//!
//! One SVG of fixed size with its own colours, readable on light and dark pages. The scale of seconds is logarithmic:
//! the two curves are more than a factor of ten apart, and one dead member is replaced within milliseconds. It draws what it is
//! given and judges nothing.

use core::fmt::Write as _;

/// Valkey 9 with 1,000 primaries and 1,000 replicas, timeout 15 s: percent of primaries killed, and seconds from the
/// first suspicion until every slot was served, as published by its makers.
pub const VALKEY: [(f64, f64); 5] = [(0.1, 9.0), (10.0, 11.0), (25.0, 14.0), (33.0, 24.0), (50.0, 52.0)];

/// One curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// What stands beside it.
    pub name: String,
    /// Its colour, as SVG writes it.
    pub colour: &'static str,
    /// Percent killed and seconds; ascending.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;

/// The scale of seconds: from a millisecond to a hundred seconds.
const DECADES: [f64; 6] = [0.001, 0.01, 0.1, 1.0, 10.0, 100.0];
/// The least and the greatest of [`DECADES`].
const SECONDS_MIN: f64 = DECADES[0];
const SECONDS_MAX: f64 = DECADES[5];

/// Percents that are written below.
const SHARES: [f64; 6] = [0.0, 10.0, 20.0, 30.0, 40.0, 50.0];

/// The whole file. `title` stands above; each curve's name stands at its end.
#[must_use]
pub fn draw(title: &str, curves: &[Curve]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    text(&mut svg, (LEFT, 26.0), "start", "#1b1f24", title);
    draw_scales(&mut svg);
    for curve in curves {
        draw_curve(&mut svg, curve);
    }
    svg.push_str("</svg>\n");
    svg
}

fn x(percent: f64) -> f64 {
    LEFT + percent / 50.0 * (WIDTH - LEFT - RIGHT)
}

fn y(seconds: f64) -> f64 {
    let (low, high) = (SECONDS_MIN.log10(), SECONDS_MAX.log10());
    let share = (seconds.max(SECONDS_MIN).log10() - low) / (high - low);
    HEIGHT - BOTTOM - share.min(1.0) * (HEIGHT - TOP - BOTTOM)
}

fn draw_scales(svg: &mut String) {
    for seconds in DECADES {
        line(svg, [(x(0.0), y(seconds)), (x(50.0), y(seconds))]);
        text(svg, (LEFT - 8.0, y(seconds) + 4.0), "end", "#57606a", &format!("{seconds} s"));
    }
    for percent in SHARES {
        line(svg, [(x(percent), y(SECONDS_MIN)), (x(percent), y(SECONDS_MIN) + 5.0)]);
        text(svg, (x(percent), y(SECONDS_MIN) + 20.0), "middle", "#57606a", &format!("{percent} %"));
    }
    let below = "share of primaries killed at one instant; seconds from the first suspicion until every slot is served";
    text(svg, (LEFT, HEIGHT - 14.0), "start", "#57606a", below);
}

fn draw_curve(svg: &mut String, curve: &Curve) {
    let Some(last) = curve.points.last() else { return };
    let colour = curve.colour;
    let path: Vec<String> = curve.points.iter().map(|(share, s)| format!("{:.1},{:.1}", x(*share), y(*s))).collect();
    push(
        svg,
        format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n",
            path.join(" ")
        ),
    );
    for (share, seconds) in &curve.points {
        let (x, y) = (x(*share), y(*seconds));
        push(svg, format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>\n"));
        text(svg, (x, y - 9.0), "middle", colour, &in_words(*seconds));
    }
    text(svg, (x(last.0) + 14.0, y(last.1) + 4.0), "start", colour, &curve.name);
}

/// Two digits of what is below ten seconds, whole seconds above.
fn in_words(seconds: f64) -> String {
    match seconds {
        ..0.01 => format!("{:.0} ms", seconds * 1e3),
        0.01..10.0 => format!("{seconds:.2} s"),
        _ => format!("{seconds:.0} s"),
    }
}

fn line(svg: &mut String, [from, to]: [(f64, f64); 2]) {
    let ((x1, y1), (x2, y2)) = (from, to);
    push(svg, format_args!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#d0d7de\"/>\n"));
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, colour: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    push(
        svg,
        format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{words}</text>\n"),
    );
}

fn push(svg: &mut String, words: core::fmt::Arguments<'_>) {
    svg.write_fmt(words).expect("a string takes what is written to it");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_holds_every_point() {
        let curve =
            |name: &str, points: &[(f64, f64)]| Curve { name: name.into(), colour: "#123456", points: points.to_vec() };
        let svg = draw(
            "a < b",
            &[curve("Valkey 9", &VALKEY), curve("Ashlar", &[(0.1, 0.01), (50.0, 200.0)]), curve("none", &[])],
        );
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("a &lt; b"));
        assert_eq!((svg.matches("<circle ").count(), svg.matches("<polyline ").count()), (7, 2));
        let heights: Vec<f64> = [0.0001, 0.001, 1.0, 52.0, 100.0, 200.0].map(y).to_vec();
        assert!(
            heights.is_sorted_by(|a, b| a >= b) && heights[0] == HEIGHT - BOTTOM && heights[5] == TOP,
            "{heights:?}"
        );
        assert_eq!([0.0042, 0.588, 9.0, 52.0].map(in_words), ["4 ms", "0.59 s", "9.00 s", "52 s"]);
        assert!(y(0.004) < y(SECONDS_MIN), "what takes milliseconds has its own height");
    }
}

//! The command line.

use ashlar_sim::command::{CommandFailure, Outside, command};

/// What the words print, and how it ended.
fn run(line: &str) -> (String, Result<(), CommandFailure>) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut outside = Outside { out: &mut out, err: &mut err, elapsed_s: &|| 1.0 };
    let ended = command(std::iter::once("bus").chain(line.split_whitespace()).map(str::to_owned), &mut outside);
    (String::from_utf8(out).expect("figures are text"), ended)
}

#[test]
fn figures_for_people_and_programs() {
    let (printed, ended) = run("--seeds 5 --check-determinism 2");
    assert!(ended.is_ok() && printed.starts_with("seeds "), "{printed}");
    let (printed, ended) = run("--seeds 1 --json");
    assert!(
        ended.is_ok() && printed.starts_with("{\"bench\": \"sim bus\"") && printed.lines().count() == 1,
        "{printed}"
    );
    let (printed, ended) = run("--members 20 --kill 25% --timeout 2s --seed 3");
    assert!(ended.is_ok() && printed.contains("kill/recovery"), "{printed}");
}

#[test]
fn a_picture_takes_standard_output() {
    let (printed, ended) = run("--members 20 --curve --seeds 1 --timeout 2s --svg");
    assert!(ended.is_ok() && printed.starts_with("<svg ") && printed.ends_with("</svg>\n"), "{printed}");
}

#[test]
fn wrong_words_are_refused() {
    assert!(matches!(run("--members two").1, Err(CommandFailure::Usage(_))));
    assert!(run("--help").0.contains("--kill"));
}

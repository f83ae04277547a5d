//! Random commands from forms: `commands.txt`, one form a line.
//!
//! A word stands for itself; `( a | b c | )` is one of these; `+` behind a mark or a group repeats it up to four times; a blank
//! after a backslash belongs to the word. Marks: `%s %l %h %t %z %x` a key that usually holds a string, list, hash, set, sorted set or
//! stream, `%u` one of places, `%j` a sorted set with equal scores, `%k` any key, `%v` a value, `%i` an integer, `%n` a small count, `%f` a float, `%m` a member, `%d` a field, `%e` a
//! stream's entry, `%g` a group, `%c` a consumer, `%p` a pattern, `%o` an offset in bits, `%w` and `%q` a time far away in
//! seconds and milliseconds, `%b` a bound of scores, `%y` a bound of members.

use crate::dice::Dice;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Word(String),
    Mark(char),
    Choice(Vec<Vec<Part>>),
    Repeat(Box<Part>),
}

/// One form of one command.
#[derive(Debug, Clone)]
pub(super) struct Form(Vec<Part>);

/// Keys of each kind.
const KEYS: u64 = 5;
/// The kinds, by their marks.
pub(super) const KINDS: [char; 6] = ['s', 'l', 'h', 't', 'z', 'x'];
const INTEGERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "2",
    "-2",
    "3",
    "5",
    "10",
    "-100",
    "9223372036854775807",
    "-9223372036854775808",
    "x",
    "1.5",
    "007",
];
const FLOATS: [&str; 14] =
    ["0", "1", "-1", "1.5", "2.25", "-3", "3", "1e3", "inf", "-inf", "nan", "x", "0.1", "1234567890.125"];
const VALUES: [&str; 14] =
    ["a", "b", "", "hello world", "10", "-5", "3.5", "a\r\nb\0c", "abcabcabc", "1e5", "\u{e9}", "99", "b", "a"];
const BOUNDS: [&str; 10] = ["-inf", "+inf", "0", "1", "(1", "(0", "3", "(3", "2.25", "x"];
const LEX: [&str; 9] = ["-", "+", "[m0", "(m3", "[m7", "(m1", "[a", "[z", "m"];
const ENTRIES: [&str; 14] =
    ["1-1", "1-2", "2-1", "3", "3-*", "4-0", "5-5", "7", "9-1", "12", "20-3", "0-0", "0", "x-1"];
const PATTERNS: [&str; 6] = ["*", "s*", "*[0-2]", "l?", "[^sl]*", "none"];

impl Form {
    /// Reads one line.
    pub(super) fn read(line: &str) -> Self {
        let line = line.replace("\\ ", "\u{1}");
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut at = 0;
        Self(sequence(&words, &mut at))
    }

    /// The command's name, with that of its subcommand where all forms have one.
    pub(super) fn name(&self) -> &str {
        match self.0.first() {
            Some(Part::Word(word)) => word,
            _ => "",
        }
    }

    /// A command of this form.
    pub(super) fn command(&self, dice: &mut Dice) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        self.0.iter().for_each(|part| write(part, dice, &mut words));
        words
    }
}

fn sequence(words: &[&str], at: &mut usize) -> Vec<Part> {
    let mut parts = Vec::new();
    while let Some(&word) = words.get(*at) {
        if matches!(word, "|" | ")" | ")+") {
            break;
        }
        *at += 1;
        parts.push(match word {
            "(" => {
                let mut choices = vec![sequence(words, at)];
                while words.get(*at) == Some(&"|") {
                    *at += 1;
                    choices.push(sequence(words, at));
                }
                let is_repeated = words.get(*at) == Some(&")+");
                *at += 1;
                let choice = Part::Choice(choices);
                if is_repeated { Part::Repeat(Box::new(choice)) } else { choice }
            }
            _ => single(word),
        });
    }
    parts
}

fn single(word: &str) -> Part {
    let mut letters = word.chars();
    match (letters.next(), letters.next(), letters.next()) {
        (Some('%'), Some(mark), None) => Part::Mark(mark),
        (Some('%'), Some(mark), Some('+')) => Part::Repeat(Box::new(Part::Mark(mark))),
        _ => Part::Word(word.replace('\u{1}', " ")),
    }
}

fn write(part: &Part, dice: &mut Dice, words: &mut Vec<Vec<u8>>) {
    match part {
        Part::Word(word) => words.push(word.clone().into_bytes()),
        Part::Mark(mark) => words.push(fill(*mark, dice).into_bytes()),
        Part::Repeat(part) => (0..=dice.below(4)).for_each(|_| write(part, dice, words)),
        Part::Choice(choices) => {
            let chosen = &choices[usize::try_from(dice.below(choices.len() as u64)).unwrap_or(0)];
            chosen.iter().for_each(|part| write(part, dice, words));
        }
    }
}

fn fill(mark: char, dice: &mut Dice) -> String {
    match mark {
        // Now and then a key of another kind.
        _ if KINDS.contains(&mark) && dice.below(15) > 0 => format!("{mark}{}", dice.below(KEYS)),
        'k' | 's' | 'l' | 'h' | 't' | 'z' | 'x' => {
            let kind = KINDS[usize::try_from(dice.below(6)).unwrap_or(0)];
            format!("{kind}{}", dice.below(KEYS))
        }
        // Ranges of members mean something only where all scores are equal.
        'j' => format!("j{}", dice.below(2)),
        // Places have keys of their own: what they make of other scores is nobody's promise.
        'u' => format!("u{}", dice.below(2)),
        'v' if dice.below(40) == 0 => "long".repeat(usize::try_from(dice.below(60)).unwrap_or(0)),
        'v' => dice.choose(&VALUES).to_owned(),
        'i' if dice.below(3) > 0 => (dice.below(9).cast_signed() - 3).to_string(),
        'i' => dice.choose(&INTEGERS).to_owned(),
        'n' if dice.below(12) > 0 => dice.below(4).to_string(),
        'n' => dice.choose(&INTEGERS).to_owned(),
        'f' if dice.below(3) > 0 => (dice.below(9).cast_signed() - 3).to_string(),
        'f' => dice.choose(&FLOATS).to_owned(),
        'm' => format!("m{}", dice.below(9)),
        'd' => format!("f{}", dice.below(7)),
        'e' if dice.below(3) > 0 => format!("{}-{}", dice.below(30), dice.below(3)),
        'e' => dice.choose(&ENTRIES).to_owned(),
        'g' => format!("g{}", dice.below(3)),
        'c' => format!("c{}", dice.below(3)),
        'p' => dice.choose(&PATTERNS).to_owned(),
        'o' => dice.below(200).to_string(),
        'w' => (4_000_000_000 + dice.below(1_000)).to_string(),
        'q' => (4_000_000_000_000 + dice.below(1_000)).to_string(),
        'b' => dice.choose(&BOUNDS).to_owned(),
        'y' => dice.choose(&LEX).to_owned(),
        other => panic!("no mark is called %{other}"),
    }
}

/// Now and then a word too few, too many, or another.
pub(super) fn garble(words: &mut Vec<Vec<u8>>, dice: &mut Dice) {
    if dice.below(25) > 0 || words.len() < 2 || words[1].starts_with(b"j") {
        return;
    }
    let at = 1 + usize::try_from(dice.below(words.len() as u64 - 1)).unwrap_or(0);
    match dice.below(4) {
        0 => drop(words.remove(at)),
        1 => words.push(fill('v', dice).into_bytes()),
        // A key that lives for milliseconds ends between the two servers' answers.
        2 if words.iter().any(|word| word.windows(2).any(|two| two == b"EX" || two == b"PX")) => {}
        2 => words[at] = fill('i', dice).into_bytes(),
        _ => words[at].make_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_gives_commands() {
        let mut dice = Dice::new(1);
        for line in super::super::FORMS.lines().filter(|line| !line.starts_with('#')) {
            let form = Form::read(line);
            for _ in 0..50 {
                let command = form.command(&mut dice);
                assert_eq!(String::from_utf8_lossy(&command[0]), form.name(), "{line}");
                assert!(!command.iter().any(|word| word == b"|" || word == b")"), "{line}: {command:?}");
            }
        }
    }

    #[test]
    fn groups_choices_and_repeats() {
        let form = Form::read("A ( B | C %n ) D\\ E %m+");
        let mut seen = std::collections::BTreeSet::new();
        let mut dice = Dice::new(7);
        for _ in 0..200 {
            let words = form.command(&mut dice);
            assert!(words.contains(&b"D E".to_vec()), "{words:?}");
            seen.insert(words[1].clone());
        }
        assert_eq!(seen, [b"B".to_vec(), b"C".to_vec()].into());
    }
}

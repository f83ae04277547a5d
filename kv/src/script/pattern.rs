//! Matcher of Lua 5.1's patterns without recursion: bounded memory, counted steps.
//!
//! A backtracking search over an explicit stack of alternatives, as in classic regular-expression matchers. Lua's own matcher does
//! the same by recursion in C: a long pattern overflows the thread's stack, and nothing can stop a search that takes for ever.
//! Here the stack has a limit, and every so many steps a function of the caller decides whether the search goes on.
//!
//! The results, and the errors with the moment when they are raised, are those of Lua 5.1.5: a malformed part of a pattern is
//! an error only when the search gets there, and a zero byte ends the pattern.

use std::fmt;
use std::ops::Range;

/// Captures of a pattern.
pub const CAPTURES_MAX: usize = 32;
/// Alternatives that a search remembers. One item of a pattern leaves at most one.
pub const ALTERNATIVES_MAX: usize = 32_768;
/// Steps between two calls of the function that decides whether the search goes on.
pub const STEPS_PER_CALL: usize = 10_000;
/// Bytes that are compared or skipped in one step.
const STEP_BYTES: usize = 16;
/// Room for alternatives that is kept from one search to the next.
const KEPT_ALTERNATIVES_MAX: usize = 256;

/// What is wrong with a pattern. The texts are Lua's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternError {
    /// It ends in the middle of an escape.
    EndsWithEscape,
    /// A set has no end.
    MissingBracket,
    /// A frontier has no set.
    MissingSet,
    /// A balanced match does not say what of.
    Unbalanced,
    /// It refers to a capture that is not there or not closed.
    CaptureIndex,
    /// It closes a capture that is not open.
    NothingToClose,
    /// More than [`CAPTURES_MAX`].
    TooManyCaptures,
    /// A capture is not closed.
    UnfinishedCapture,
    /// More than [`ALTERNATIVES_MAX`].
    TooComplex,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EndsWithEscape => "malformed pattern (ends with '%')",
            Self::MissingBracket => "malformed pattern (missing ']')",
            Self::MissingSet => "missing '[' after '%f' in pattern",
            Self::Unbalanced => "unbalanced pattern",
            Self::CaptureIndex => "invalid capture index",
            Self::NothingToClose => "invalid pattern capture",
            Self::TooManyCaptures => "too many captures",
            Self::UnfinishedCapture => "unfinished capture",
            Self::TooComplex => "pattern too complex",
        })
    }
}

impl std::error::Error for PatternError {}

/// Why a search has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault<E> {
    /// The pattern is wrong.
    Pattern(PatternError),
    /// The caller stopped the search.
    Stopped(E),
}

impl<E> From<PatternError> for Fault<E> {
    fn from(error: PatternError) -> Self {
        Self::Pattern(error)
    }
}

/// Counts the steps of searches and asks the caller, every [`STEPS_PER_CALL`] of them, whether to go on.
pub struct Steps<'s, E> {
    left: &'s mut usize,
    go_on: &'s mut dyn FnMut() -> Result<(), E>,
}

impl<'s, E> Steps<'s, E> {
    /// Counts down `left`, which one search leaves to the next. An error of `go_on` stops the search.
    pub fn new(left: &'s mut usize, go_on: &'s mut dyn FnMut() -> Result<(), E>) -> Self {
        Self { left, go_on }
    }

    /// Counts some steps.
    ///
    /// # Errors
    /// The caller does not want to go on.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<(), Fault<E>> {
        match self.left.checked_sub(count) {
            Some(left) => {
                *self.left = left;
                Ok(())
            }
            None => self.ask(count - *self.left),
        }
    }

    /// Counts the steps that it takes to copy or compare so many bytes.
    ///
    /// # Errors
    /// The caller does not want to go on.
    #[inline]
    pub fn take_bytes(&mut self, len: usize) -> Result<(), Fault<E>> {
        self.take(len / STEP_BYTES)
    }

    #[cold]
    fn ask(&mut self, mut beyond: usize) -> Result<(), Fault<E>> {
        loop {
            (self.go_on)().map_err(Fault::Stopped)?;
            match beyond.checked_sub(STEPS_PER_CALL) {
                Some(rest) => beyond = rest,
                None => {
                    *self.left = STEPS_PER_CALL - beyond;
                    return Ok(());
                }
            }
        }
    }
}

/// How far a capture has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// It is not closed yet.
    Open,
    /// It is a position.
    Position,
    /// It is a piece of so many bytes.
    Closed(usize),
}

#[derive(Debug, Clone, Copy)]
struct Capture {
    start: usize,
    extent: Extent,
}

/// What a pattern has captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Captured {
    /// A piece of the text.
    Piece(Range<usize>),
    /// A position in the text, from 0.
    Position(usize),
}

/// What is tried if what follows fails, or taken back. Places in the text are `at`, those in the pattern `next`.
#[derive(Debug, Clone, Copy)]
enum Alternative {
    /// To go on without an optional item.
    Without { at: usize, next: usize },
    /// To go on with one repetition fewer, down to `least`.
    Fewer { least: usize, at: usize, next: usize },
    /// To go on with one repetition more of the item between `item` and `end`.
    More { at: usize, item: usize, end: usize },
    /// The last capture is not there.
    Unopen,
    /// A capture is open again.
    Unclose(usize),
}

/// What searches work with, and what the last one captured.
#[derive(Debug)]
pub struct Matcher {
    captures: [Capture; CAPTURES_MAX],
    /// How many of them there are.
    level: usize,
    alternatives: Vec<Alternative>,
}

impl Default for Matcher {
    fn default() -> Self {
        let none = Capture { start: 0, extent: Extent::Open };
        Self { captures: [none; CAPTURES_MAX], level: 0, alternatives: Vec::new() }
    }
}

/// Splits a pattern as `find`, `match` and `gsub` read it: whether it matches at the beginning only, and what is to match.
#[must_use]
pub fn split_anchor(pattern: &[u8]) -> (bool, &[u8]) {
    match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    }
}

/// Whether no byte of a pattern stands for anything but itself.
#[must_use]
pub fn is_plain(pattern: &[u8]) -> bool {
    !text_of(pattern).iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

/// Finds a text in another from a place on. The time is that of comparing at each place, which `steps` counts.
///
/// # Errors
/// The caller does not want to go on.
///
/// # Panics
/// The place is behind the text.
pub fn find_plain<E>(
    text: &[u8],
    wanted: &[u8],
    from: usize,
    steps: &mut Steps<'_, E>,
) -> Result<Option<Range<usize>>, Fault<E>> {
    let Some((first, rest)) = wanted.split_first() else { return Ok(Some(from..from)) };
    let mut at = from;
    while text.len() - at >= wanted.len() {
        let places = &text[at..=text.len() - wanted.len()];
        let Some(skipped) = places.iter().position(|byte| byte == first) else {
            steps.take_bytes(places.len())?;
            return Ok(None);
        };
        at += skipped;
        let (mut here, mut rest) = (&text[at + 1..], rest);
        steps.take(1 + skipped / STEP_BYTES)?;
        // In pieces, because most comparisons end early.
        while let (Some(one), Some(other)) = (here.get(..STEP_BYTES), rest.get(..STEP_BYTES))
            && one == other
        {
            (here, rest) = (&here[STEP_BYTES..], &rest[STEP_BYTES..]);
            steps.take(1)?;
        }
        if here.starts_with(rest) {
            return Ok(Some(at..at + wanted.len()));
        }
        at += 1;
    }
    Ok(None)
}

/// How long a text may be for Lua's own matcher to be harmless: bounded in its recursion, some 100 microseconds long, and without
/// an error. `None` for a pattern that is never harmless. The bound holds for all matches in a text together; it takes an anchor
/// for one.
#[must_use]
pub fn harmless_len(pattern: &[u8]) -> Option<usize> {
    /// Bytes of a pattern, so that recursion is shallow.
    const PATTERN_BYTES_MAX: usize = 64;
    /// Comparisons of a byte with an item.
    const COMPARISONS_MAX: usize = 1 << 16;
    let (is_anchored, pattern) = split_anchor(pattern);
    if pattern.len() > PATTERN_BYTES_MAX || pattern.contains(&0) {
        return None;
    }
    let mut walk = Walk::default();
    walk.go(pattern).ok()?;
    // A loop at the end succeeds when it is reached: what was compared then is not compared again.
    let loops = walk.loops - usize::from(walk.ends_in_loop) + usize::from(!is_anchored);
    let comparisons = (COMPARISONS_MAX >> walk.optional.min(COMPARISONS_MAX.ilog2() as usize)) / pattern.len().max(1);
    match u32::try_from(loops).expect("there are at most as many as bytes") {
        0 => Some(usize::MAX),
        1 => Some(comparisons),
        loops => {
            (1..=comparisons).take_while(|len| len.checked_pow(loops).is_some_and(|all| all <= comparisons)).last()
        }
    }
}

/// What a pattern consists of.
#[derive(Debug, Default)]
struct Walk {
    /// Items that try several lengths.
    loops: usize,
    /// Nothing can fail behind the last of them.
    ends_in_loop: bool,
    /// Items that may be missing.
    optional: usize,
    /// Captures; whether each is closed.
    captures: Vec<bool>,
}

impl Walk {
    /// Reads a whole pattern.
    fn go(&mut self, pattern: &[u8]) -> Result<(), PatternError> {
        let mut next = 0;
        while let Some(byte) = pattern.get(next) {
            let is_end = matches!(byte, b')');
            let is_loop = match (byte, pattern.get(next + 1)) {
                (b'(', after) => {
                    let is_position = after == Some(&b')');
                    self.captures.push(is_position);
                    next += 1 + usize::from(is_position);
                    false
                }
                (b')', _) => {
                    let open = self.captures.iter().rposition(|is_closed| !is_closed);
                    self.captures[open.ok_or(PatternError::NothingToClose)?] = true;
                    next += 1;
                    false
                }
                (b'%', Some(b'b')) if pattern.len() < next + 4 => return Err(PatternError::Unbalanced),
                (b'%', Some(b'b')) => {
                    next += 4;
                    self.loops += 1;
                    false
                }
                (b'%', Some(b'f')) => {
                    next += 2;
                    if pattern.get(next) != Some(&b'[') {
                        return Err(PatternError::MissingSet);
                    }
                    next = item_end(pattern, next)?;
                    false
                }
                (b'%', Some(digit @ b'0'..=b'9')) => {
                    let index = usize::from(digit.checked_sub(b'1').ok_or(PatternError::CaptureIndex)?);
                    if self.captures.get(index) != Some(&true) {
                        return Err(PatternError::CaptureIndex);
                    }
                    next += 2;
                    self.loops += 1;
                    false
                }
                (b'$', None) => {
                    next += 1;
                    false
                }
                _ => self.item(pattern, &mut next)?,
            };
            self.ends_in_loop = is_loop || (is_end && self.ends_in_loop);
        }
        match self.captures.iter().all(|is_closed| *is_closed) {
            true if self.captures.len() <= CAPTURES_MAX => Ok(()),
            true => Err(PatternError::TooManyCaptures),
            false => Err(PatternError::UnfinishedCapture),
        }
    }

    /// Reads an item with what says how often it may be there. Says whether it tries several lengths.
    fn item(&mut self, pattern: &[u8], next: &mut usize) -> Result<bool, PatternError> {
        *next = item_end(pattern, *next)?;
        match pattern.get(*next) {
            Some(b'?') => self.optional += 1,
            Some(b'*' | b'+' | b'-') => self.loops += 1,
            _ => return Ok(false),
        }
        *next += 1;
        Ok(pattern[*next - 1] != b'?')
    }
}

/// A pattern up to its end, which is a zero byte if there is one.
fn text_of(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|byte| *byte == 0).unwrap_or(pattern.len());
    &pattern[..end]
}

impl Matcher {
    /// Finds the first match of a pattern (without its anchor) from a place of a text on; only there if `is_anchored`.
    ///
    /// # Errors
    /// The pattern is wrong or needs too much, or the caller stopped the search.
    pub fn find<E>(
        &mut self,
        text: &[u8],
        pattern: &[u8],
        (from, is_anchored): (usize, bool),
        steps: &mut Steps<'_, E>,
    ) -> Result<Option<Range<usize>>, Fault<E>> {
        let pattern = text_of(pattern);
        let first = if is_anchored { None } else { first_byte(pattern) };
        let mut start = from;
        let found = loop {
            if start > text.len() {
                break None;
            }
            if let Some(first) = first {
                let rest = &text[start..];
                let skipped = rest.iter().position(|byte| *byte == first);
                steps.take_bytes(skipped.unwrap_or(rest.len()))?;
                let Some(skipped) = skipped else { break None };
                start += skipped;
            }
            self.level = 0;
            self.alternatives.clear();
            let attempt = Attempt { matcher: &mut *self, text, pattern, at: start, next: 0 };
            if let Some(end) = attempt.run(steps)? {
                break Some(start..end);
            }
            if is_anchored {
                break None;
            }
            start += 1;
        };
        self.alternatives.shrink_to(KEPT_ALTERNATIVES_MAX);
        Ok(found)
    }

    /// How many captures the last match has.
    #[must_use]
    pub fn captures(&self) -> usize {
        self.level
    }

    /// One of them, from 0. Without any, the first is the whole match.
    ///
    /// # Errors
    /// It is not there, or not closed.
    pub fn capture(&self, index: usize, whole: &Range<usize>) -> Result<Captured, PatternError> {
        match self.captures[..self.level].get(index) {
            None if index == 0 => Ok(Captured::Piece(whole.clone())),
            None => Err(PatternError::CaptureIndex),
            Some(Capture { extent: Extent::Open, .. }) => Err(PatternError::UnfinishedCapture),
            Some(Capture { start, extent: Extent::Position }) => Ok(Captured::Position(*start)),
            Some(Capture { start, extent: Extent::Closed(len) }) => Ok(Captured::Piece(*start..start + len)),
        }
    }
}

/// The byte that each match begins with, if the pattern says so plainly.
fn first_byte(pattern: &[u8]) -> Option<u8> {
    match pattern {
        [b'(' | b')' | b'%' | b'.' | b'[' | b'$', ..] | [] | [_, b'*' | b'?' | b'-', ..] => None,
        [first, ..] => Some(*first),
    }
}

/// A match that is tried at one place.
struct Attempt<'m> {
    matcher: &'m mut Matcher,
    text: &'m [u8],
    pattern: &'m [u8],
    at: usize,
    next: usize,
}

impl Attempt<'_> {
    /// Where the match ends, if there is one.
    fn run<E>(mut self, steps: &mut Steps<'_, E>) -> Result<Option<usize>, Fault<E>> {
        loop {
            steps.take(1)?;
            let goes_on = match (self.byte(self.next), self.byte(self.next + 1)) {
                (None, _) => return Ok(Some(self.at)),
                (Some(b'('), Some(b')')) => self.open(2, Extent::Position)?,
                (Some(b'('), _) => self.open(1, Extent::Open)?,
                (Some(b')'), _) => self.close()?,
                (Some(b'%'), Some(b'b')) => self.balance(steps)?,
                (Some(b'%'), Some(b'f')) => self.frontier()?,
                (Some(b'%'), Some(digit @ b'0'..=b'9')) => self.refer(digit, steps)?,
                (Some(b'$'), None) if self.at == self.text.len() => return Ok(Some(self.at)),
                (Some(b'$'), None) => false,
                (Some(_), _) => self.item(steps)?,
            };
            if !goes_on && !self.go_back(steps)? {
                return Ok(None);
            }
        }
    }

    /// Takes back the last alternative that is left. Says whether there was one.
    fn go_back<E>(&mut self, steps: &mut Steps<'_, E>) -> Result<bool, Fault<E>> {
        while let Some(alternative) = self.matcher.alternatives.pop() {
            match alternative {
                Alternative::Without { at, next } => {
                    (self.at, self.next) = (at, next);
                    return Ok(true);
                }
                Alternative::Fewer { least, at, next } => {
                    (self.at, self.next) = (at - 1, next);
                    if self.at > least {
                        self.matcher.alternatives.push(Alternative::Fewer { least, at: self.at, next });
                    }
                    return Ok(true);
                }
                Alternative::More { at, item, end } if self.is_single(at, item, end) => {
                    (self.at, self.next) = (at + 1, end + 1);
                    self.matcher.alternatives.push(Alternative::More { at: self.at, item, end });
                    return Ok(true);
                }
                Alternative::More { .. } => {}
                Alternative::Unopen => self.matcher.level -= 1,
                Alternative::Unclose(index) => self.matcher.captures[index].extent = Extent::Open,
            }
            steps.take(1)?;
        }
        Ok(false)
    }

    fn byte(&self, index: usize) -> Option<u8> {
        self.pattern.get(index).copied()
    }

    fn remember(&mut self, alternative: Alternative) -> Result<(), PatternError> {
        if self.matcher.alternatives.len() == ALTERNATIVES_MAX {
            return Err(PatternError::TooComplex);
        }
        self.matcher.alternatives.push(alternative);
        Ok(())
    }

    fn open(&mut self, len: usize, extent: Extent) -> Result<bool, PatternError> {
        let level = self.matcher.level;
        let capture = self.matcher.captures.get_mut(level).ok_or(PatternError::TooManyCaptures)?;
        *capture = Capture { start: self.at, extent };
        self.matcher.level = level + 1;
        self.next += len;
        self.remember(Alternative::Unopen)?;
        Ok(true)
    }

    fn close(&mut self) -> Result<bool, PatternError> {
        let captures = &mut self.matcher.captures[..self.matcher.level];
        let open = captures.iter().rposition(|capture| capture.extent == Extent::Open);
        let index = open.ok_or(PatternError::NothingToClose)?;
        captures[index].extent = Extent::Closed(self.at - captures[index].start);
        self.next += 1;
        self.remember(Alternative::Unclose(index))?;
        Ok(true)
    }

    /// `%b`: from an opening byte to the one that closes it.
    fn balance<E>(&mut self, steps: &mut Steps<'_, E>) -> Result<bool, Fault<E>> {
        let (Some(open), Some(close)) = (self.byte(self.next + 2), self.byte(self.next + 3)) else {
            return Err(PatternError::Unbalanced.into());
        };
        let Some((_, rest)) = self.text[self.at..].split_first().filter(|(first, _)| **first == open) else {
            return Ok(false);
        };
        let mut depth = 1_usize;
        for (index, byte) in rest.iter().enumerate() {
            if *byte == close {
                depth -= 1;
                if depth == 0 {
                    steps.take(index)?;
                    (self.at, self.next) = (self.at + index + 2, self.next + 4);
                    return Ok(true);
                }
            } else if *byte == open {
                depth += 1;
            }
        }
        steps.take(rest.len())?;
        Ok(false)
    }

    /// `%f`: between a byte that is not in a set and one that is. Around the text there are zero bytes.
    fn frontier(&mut self) -> Result<bool, PatternError> {
        let set = self.next + 2;
        if self.byte(set) != Some(b'[') {
            return Err(PatternError::MissingSet);
        }
        let end = item_end(self.pattern, set)?;
        let before = if self.at == 0 { 0 } else { self.text[self.at - 1] };
        let after = self.text.get(self.at).copied().unwrap_or(0);
        self.next = end;
        let set = &self.pattern[set + 1..end - 1];
        Ok(!is_in_set(before, set) && is_in_set(after, set))
    }

    /// `%1` to `%9`: what a capture has.
    fn refer<E>(&mut self, digit: u8, steps: &mut Steps<'_, E>) -> Result<bool, Fault<E>> {
        let captures = &self.matcher.captures[..self.matcher.level];
        let capture = digit.checked_sub(b'1').and_then(|index| captures.get(usize::from(index)));
        let (start, len) = match capture {
            None | Some(Capture { extent: Extent::Open, .. }) => return Err(PatternError::CaptureIndex.into()),
            // In C its length is greater than any text.
            Some(Capture { extent: Extent::Position, .. }) => return Ok(false),
            Some(Capture { start, extent: Extent::Closed(len) }) => (*start, *len),
        };
        steps.take_bytes(len)?;
        let is_again = self.text[self.at..].starts_with(&self.text[start..start + len]);
        (self.at, self.next) = (self.at + if is_again { len } else { 0 }, self.next + 2);
        Ok(is_again)
    }

    /// A byte, a class or a set, and how often it may be there.
    fn item<E>(&mut self, steps: &mut Steps<'_, E>) -> Result<bool, Fault<E>> {
        let (item, end) = (self.next, item_end(self.pattern, self.next)?);
        match self.byte(end) {
            Some(b'?') => {
                self.next = end + 1;
                if self.is_single(self.at, item, end) {
                    self.remember(Alternative::Without { at: self.at, next: self.next })?;
                    self.at += 1;
                }
                Ok(true)
            }
            Some(b'*') => self.repeat(item, end, self.at, steps),
            Some(b'+') if self.is_single(self.at, item, end) => self.repeat(item, end, self.at + 1, steps),
            Some(b'+') => Ok(false),
            Some(b'-') => {
                self.next = end + 1;
                self.remember(Alternative::More { at: self.at, item, end })?;
                Ok(true)
            }
            _ => {
                let is_single = self.is_single(self.at, item, end);
                (self.at, self.next) = (self.at + usize::from(is_single), end);
                Ok(is_single)
            }
        }
    }

    /// As many as there are of an item; `least` is where the first of them that may be missing stands.
    fn repeat<E>(&mut self, item: usize, end: usize, least: usize, steps: &mut Steps<'_, E>) -> Result<bool, Fault<E>> {
        let rest = &self.text[least..];
        let different = match &self.pattern[item..end] {
            [b'.'] => None,
            [b'[', set @ .., b']'] => rest.iter().position(|byte| !is_in_set(*byte, set)),
            [b'%', class] => rest.iter().position(|byte| !is_in_class(*byte, *class)),
            other => rest.iter().position(|byte| *byte != other[0]),
        };
        let len = different.unwrap_or(rest.len());
        steps.take(len)?;
        (self.at, self.next) = (least + len, end + 1);
        if len > 0 {
            self.remember(Alternative::Fewer { least, at: self.at, next: self.next })?;
        }
        Ok(true)
    }

    /// Whether the item from `item` to `end` stands at a place of the text.
    #[inline]
    fn is_single(&self, at: usize, item: usize, end: usize) -> bool {
        let Some(byte) = self.text.get(at) else { return false };
        match &self.pattern[item..end] {
            [b'.'] => true,
            [b'[', set @ .., b']'] => is_in_set(*byte, set),
            [b'%', class] => is_in_class(*byte, *class),
            other => *byte == other[0],
        }
    }
}

/// Where the item that begins at a place of a pattern ends.
fn item_end(pattern: &[u8], item: usize) -> Result<usize, PatternError> {
    match pattern[item] {
        b'%' if item + 1 == pattern.len() => Err(PatternError::EndsWithEscape),
        b'%' => Ok(item + 2),
        b'[' => {
            let mut next = item + 1 + usize::from(pattern.get(item + 1) == Some(&b'^'));
            // A bracket that stands first is one of the set.
            loop {
                let byte = pattern.get(next).ok_or(PatternError::MissingBracket)?;
                next += 1;
                if *byte == b'%' && next < pattern.len() {
                    next += 1;
                }
                if pattern.get(next) == Some(&b']') {
                    return Ok(next + 1);
                }
            }
        }
        _ => Ok(item + 1),
    }
}

/// Whether a byte is in a set, given as what stands between its brackets.
fn is_in_set(byte: u8, set: &[u8]) -> bool {
    let (mut rest, is_in) = match set {
        [b'^', rest @ ..] => (rest, false),
        _ => (set, true),
    };
    loop {
        let is_among = match rest {
            [] => return !is_in,
            [b'%', class, after @ ..] => {
                rest = after;
                is_in_class(byte, *class)
            }
            // What it escapes is the bracket that ends the set: the one that stood before it was the end of a range.
            [b'%'] => {
                rest = &[];
                byte == b']'
            }
            [first, b'-', last, after @ ..] => {
                rest = after;
                (*first..=*last).contains(&byte)
            }
            [only, after @ ..] => {
                rest = after;
                byte == *only
            }
        };
        if is_among {
            return is_in;
        }
    }
}

/// Whether a byte is in a class, by its letter; a capital letter is for what is not in it, and what is no class is itself.
fn is_in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return byte == class,
    };
    is_in != class.is_ascii_uppercase()
}

//! `cjson`: values as JSON and back, with the behaviour of Lua CJSON 2.1.0.
//!
//! `null` is a pointer to nothing, because tables cannot hold nil. Text passes as it is: whether it is UTF-8 is not looked at.
//! Neither way goes by recursion, so depth costs memory and no stack.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{Function, Lua, Table, Value};

use super::super::arguments::{Arguments, type_name};
use super::super::number::{read_number, write_short};
use super::add;

/// Levels of tables in tables, whatever a script asks for.
const LEVELS_MAX: usize = 4_000;
/// Bytes of JSON that one call makes at most.
const TEXT_BYTES_MAX: usize = 512 << 20;
/// The most digits of a number.
const DIGITS_MAX: i32 = 14;

/// What numbers that JSON does not have are written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strange {
    /// An error.
    Refused,
    /// As C writes them.
    Written,
    /// `null`.
    Null,
}

/// What a script has chosen. Each table that `cjson.new` makes has its own.
#[derive(Debug, Clone)]
struct Options {
    sparse_converts: bool,
    /// A table is too sparse if its greatest index is more than so many times its elements; never for 0.
    sparse_ratio: i32,
    /// Indexes up to this are never too sparse.
    sparse_safe: i32,
    encode_depth_max: i32,
    decode_depth_max: i32,
    digits: i32,
    keeps_buffer: bool,
    encodes_strange: Strange,
    decodes_strange: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sparse_converts: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: 1_000,
            decode_depth_max: 1_000,
            digits: DIGITS_MAX,
            keeps_buffer: true,
            encodes_strange: Strange::Refused,
            decodes_strange: true,
        }
    }
}

/// The same, shared by the functions of one table.
#[derive(Debug, Clone, Default)]
struct Chosen(Arc<Mutex<Options>>);

impl Chosen {
    fn lock(&self) -> MutexGuard<'_, Options> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn table(lua: &Lua) -> mlua::Result<Table> {
    // Lua's own `next`, which goes on behind a key.
    make(lua, &lua.globals().raw_get("next")?)
}

fn make(lua: &Lua, next: &Function) -> mlua::Result<Table> {
    let (table, chosen) = (lua.create_table()?, Chosen::default());
    let (options, goes_on) = (chosen.clone(), next.clone());
    add(lua, &table, "encode", move |arguments| {
        one_argument(&arguments)?;
        let options = options.lock().clone();
        let mut encoder = Encoder { arguments: &arguments, options, next: &goes_on, out: Vec::new(), open: Vec::new() };
        encoder.encode(arguments.get(1).clone())?;
        arguments.lua.create_string(&encoder.out)
    })?;
    let options = chosen.clone();
    add(lua, &table, "decode", move |arguments| {
        one_argument(&arguments)?;
        let text = arguments.bytes(1)?;
        let options = options.lock().clone();
        decode(&arguments, &text, &options)
    })?;
    add_options(lua, &table, &chosen)?;
    let next = next.clone();
    add(lua, &table, "new", move |arguments| make(arguments.lua, &next))?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}

fn one_argument(arguments: &Arguments<'_>) -> mlua::Result<()> {
    if arguments.len() == 1 { Ok(()) } else { Err(arguments.wrong(1, "expected 1 argument")) }
}

// What scripts choose. Each function takes nothing, to ask, or the new choice.

fn add_options(lua: &Lua, table: &Table, chosen: &Chosen) -> mlua::Result<()> {
    let options = chosen.clone();
    add(lua, table, "encode_sparse_array", move |arguments| {
        not_more(&arguments, 3)?;
        let mut options = options.lock();
        if let Some(converts) = on_or_off(&arguments, 1)? {
            options.sparse_converts = converts;
        }
        choose(&arguments, 2, &mut options.sparse_ratio, 0, i32::MAX)?;
        choose(&arguments, 3, &mut options.sparse_safe, 0, i32::MAX)?;
        Ok((options.sparse_converts, options.sparse_ratio, options.sparse_safe))
    })?;
    type Field = fn(&mut Options) -> &mut i32;
    let numbers: [(&str, Field, i32); 3] = [
        ("encode_max_depth", |options| &mut options.encode_depth_max, i32::MAX),
        ("decode_max_depth", |options| &mut options.decode_depth_max, i32::MAX),
        ("encode_number_precision", |options| &mut options.digits, DIGITS_MAX),
    ];
    for (name, field, max) in numbers {
        let options = chosen.clone();
        add(lua, table, name, move |arguments| {
            not_more(&arguments, 1)?;
            let mut options = options.lock();
            let field = field(&mut options);
            choose(&arguments, 1, field, 1, max)?;
            Ok(*field)
        })?;
    }
    type Flag = fn(&mut Options) -> &mut bool;
    let flags: [(&str, Flag); 2] = [
        ("encode_keep_buffer", |options| &mut options.keeps_buffer),
        ("decode_invalid_numbers", |options| &mut options.decodes_strange),
    ];
    for (name, field) in flags {
        let options = chosen.clone();
        add(lua, table, name, move |arguments| {
            not_more(&arguments, 1)?;
            let mut options = options.lock();
            let field = field(&mut options);
            *field = on_or_off(&arguments, 1)?.unwrap_or(*field);
            Ok(*field)
        })?;
    }
    let options = chosen.clone();
    add(lua, table, "encode_invalid_numbers", move |arguments| {
        not_more(&arguments, 1)?;
        let mut options = options.lock();
        options.encodes_strange = strange(&arguments)?.unwrap_or(options.encodes_strange);
        match options.encodes_strange {
            Strange::Refused => Ok(Value::Boolean(false)),
            Strange::Written => Ok(Value::Boolean(true)),
            Strange::Null => arguments.lua.create_string("null").map(Value::String),
        }
    })
}

fn not_more(arguments: &Arguments<'_>, count: usize) -> mlua::Result<()> {
    if arguments.len() <= count { Ok(()) } else { Err(arguments.wrong(count + 1, "found too many arguments")) }
}

/// A whole number within bounds. The error names argument 1, whichever it is.
fn choose(arguments: &Arguments<'_>, number: usize, field: &mut i32, min: i32, max: i32) -> mlua::Result<()> {
    if arguments.get(number).is_nil() {
        return Ok(());
    }
    #[expect(clippy::cast_possible_truncation, reason = "C takes the lower half")]
    let value = arguments.integer(number)? as i32;
    if !(min..=max).contains(&value) {
        return Err(arguments.wrong(1, &format!("expected integer between {min} and {max}")));
    }
    *field = value;
    Ok(())
}

fn on_or_off(arguments: &Arguments<'_>, number: usize) -> mlua::Result<Option<bool>> {
    match arguments.get(number) {
        Value::Nil => Ok(None),
        Value::Boolean(is_on) => Ok(Some(*is_on)),
        _ => match arguments.bytes(number)?.as_slice() {
            b"off" => Ok(Some(false)),
            b"on" => Ok(Some(true)),
            other => Err(arguments.wrong(number, &format!("invalid option '{}'", String::from_utf8_lossy(other)))),
        },
    }
}

fn strange(arguments: &Arguments<'_>) -> mlua::Result<Option<Strange>> {
    if matches!(arguments.get(1), Value::String(text) if *text == "null") {
        return Ok(Some(Strange::Null));
    }
    let is_on = on_or_off(arguments, 1)?;
    Ok(is_on.map(|is_on| if is_on { Strange::Written } else { Strange::Refused }))
}

/// A table that is being written.
enum Open {
    /// An array of so many elements, after so many of them.
    Array(Table, i32, i32),
    /// An object, after a key; nil before the first.
    Object(Table, Value),
}

struct Encoder<'a> {
    arguments: &'a Arguments<'a>,
    options: Options,
    next: &'a Function,
    out: Vec<u8>,
    open: Vec<Open>,
}

impl Encoder<'_> {
    /// Writes a value with all that is in it.
    fn encode(&mut self, value: Value) -> mlua::Result<()> {
        self.write(value)?;
        while let Some(open) = self.open.pop() {
            if self.out.len() > TEXT_BYTES_MAX {
                return Err(self.arguments.failed("not enough memory"));
            }
            match open {
                Open::Array(_, len, at) if at == len => self.out.push(b']'),
                Open::Array(table, len, at) => {
                    if at > 0 {
                        self.out.push(b',');
                    }
                    let element = table.raw_get(at + 1)?;
                    self.open.push(Open::Array(table, len, at + 1));
                    self.write(element)?;
                }
                Open::Object(table, before) => {
                    let is_first = before.is_nil();
                    let (key, value): (Value, Value) = self.next.call((&table, before))?;
                    if key.is_nil() {
                        self.out.push(b'}');
                        continue;
                    }
                    if !is_first {
                        self.out.push(b',');
                    }
                    self.key(&key)?;
                    self.open.push(Open::Object(table, key));
                    self.write(value)?;
                }
            }
        }
        Ok(())
    }

    /// Writes a value; a table is only begun.
    fn write(&mut self, value: Value) -> mlua::Result<()> {
        match value {
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => self.number(&value)?,
            Value::Boolean(is_true) => self.out.extend_from_slice(if is_true { b"true" } else { b"false" }),
            Value::Table(table) => self.begin(table)?,
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => self.out.extend_from_slice(b"null"),
            other => return Err(self.cannot(&other, "type not supported")),
        }
        Ok(())
    }

    fn cannot(&self, value: &Value, why: &str) -> mlua::Error {
        self.arguments.failed(&format!("Cannot serialise {}: {why}", type_name(value)))
    }

    fn begin(&mut self, table: Table) -> mlua::Result<()> {
        let depth = self.open.len() + 1;
        let is_allowed = i32::try_from(depth).is_ok_and(|depth| depth <= self.options.encode_depth_max);
        if !is_allowed || depth > LEVELS_MAX {
            return Err(self.arguments.failed(&format!("Cannot serialise, excessive nesting ({depth})")));
        }
        match self.array_len(&table)? {
            len if len > 0 => {
                self.out.push(b'[');
                self.open.push(Open::Array(table, len, 0));
            }
            _ => {
                self.out.push(b'{');
                self.open.push(Open::Object(table, Value::Nil));
            }
        }
        Ok(())
    }

    /// The greatest index of a table that has only whole positive ones; -1 for others, and for what is too sparse.
    fn array_len(&self, table: &Table) -> mlua::Result<i32> {
        let (mut greatest, mut count) = (0_i32, 0_i32);
        let mut is_array = true;
        let looked = table.for_each(|key: Value, _: Value| {
            let index = match key {
                #[expect(clippy::cast_precision_loss, reason = "it was a double before")]
                Value::Integer(index) => index as f64,
                Value::Number(index) => index,
                _ => 0.0,
            };
            is_array = index >= 1.0 && index.fract() == 0.0;
            if !is_array {
                return Err(mlua::Error::external("that is enough"));
            }
            if index > f64::from(greatest) {
                greatest = low_integer(index);
            }
            count = count.wrapping_add(1);
            Ok(())
        });
        if !is_array {
            return Ok(-1);
        }
        looked?;
        let Options { sparse_ratio, sparse_safe, sparse_converts, .. } = self.options;
        let is_sparse = sparse_ratio > 0 && greatest > count.wrapping_mul(sparse_ratio) && greatest > sparse_safe;
        match (is_sparse, sparse_converts) {
            (false, _) => Ok(greatest),
            (true, true) => Ok(-1),
            (true, false) => Err(self.arguments.failed("Cannot serialise table: excessively sparse array")),
        }
    }

    fn key(&mut self, key: &Value) -> mlua::Result<()> {
        match key {
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => {
                self.out.push(b'"');
                self.number(key)?;
                self.out.push(b'"');
            }
            other => return Err(self.cannot(other, "table key must be a number or string")),
        }
        self.out.push(b':');
        Ok(())
    }

    fn number(&mut self, value: &Value) -> mlua::Result<()> {
        let number = self.arguments.number_of(value).expect("it is a number");
        match (number.is_finite(), self.options.encodes_strange) {
            (true, _) => {}
            (false, Strange::Refused) => return Err(self.cannot(value, "must not be NaN or Inf")),
            (false, Strange::Null) => {
                self.out.extend_from_slice(b"null");
                return Ok(());
            }
            (false, Strange::Written) if number.is_nan() => {
                self.out.extend_from_slice(b"nan");
                return Ok(());
            }
            (false, Strange::Written) => {}
        }
        let digits = usize::try_from(self.options.digits).expect("it is between 1 and 14");
        write_short(number, digits, &mut self.out);
        Ok(())
    }

    fn text(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for byte in text {
            let escaped = match byte {
                b'"' | b'\\' | b'/' => *byte,
                0x08 => b'b',
                b'\t' => b't',
                b'\n' => b'n',
                0x0c => b'f',
                b'\r' => b'r',
                0..0x20 | 0x7f => {
                    self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                    continue;
                }
                _ => {
                    self.out.push(*byte);
                    continue;
                }
            };
            self.out.extend_from_slice(&[b'\\', escaped]);
        }
        self.out.push(b'"');
    }
}

/// A number as a C `int`, as x86 converts it: what does not fit is the smallest.
#[expect(clippy::cast_possible_truncation, reason = "what does not fit was sorted out")]
fn low_integer(number: f64) -> i32 {
    if number < 2_147_483_648.0 { number as i32 } else { i32::MIN }
}

/// A piece of JSON.
#[derive(Debug, PartialEq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Wrong(&'static str),
}

impl Token {
    /// As errors call it.
    fn name(&self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ArrayBegin => "T_ARR_BEGIN",
            Self::ArrayEnd => "T_ARR_END",
            Self::Text(_) => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::Wrong(what) => what,
        }
    }
}

/// Reads JSON piece by piece. A zero byte is its end.
struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    /// Where the last token begins, or is wrong.
    begin: usize,
    decodes_strange: bool,
}

impl Tokens<'_> {
    fn byte(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn wrong(&mut self, what: &'static str) -> Token {
        self.begin = self.at;
        Token::Wrong(what)
    }

    fn next(&mut self) -> Token {
        while matches!(self.byte(0), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.begin = self.at;
        let token = match self.byte(0) {
            0 => return Token::End,
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' if !self.decodes_strange && self.is_strange() => return self.wrong("invalid number"),
            b'-' | b'0'..=b'9' => return self.number(),
            b'f' | b'i' | b'I' | b'n' | b'N' | b't' | b'+' => return self.word(),
            _ => return self.wrong("invalid token"),
        };
        self.at += 1;
        token
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let words = [(&b"true"[..], Token::Boolean(true)), (b"false", Token::Boolean(false)), (b"null", Token::Null)];
        for (word, token) in words {
            if rest.starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        if self.decodes_strange && self.is_strange() { self.number() } else { self.wrong("invalid token") }
    }

    /// Whether what stands here may be a number for C and is none for JSON.
    fn is_strange(&self) -> bool {
        if self.byte(0) == b'+' {
            return true;
        }
        let skip = usize::from(self.byte(0) == b'-');
        match self.byte(skip) {
            b'0' => matches!(self.byte(skip + 1), b'x' | b'X' | b'0'..=b'9'),
            byte if byte <= b'9' || byte >= 0x80 => false,
            _ => {
                let word = [0, 1, 2].map(|ahead| self.byte(skip + ahead).to_ascii_lowercase());
                matches!(&word, b"inf" | b"nan")
            }
        }
    }

    fn number(&mut self) -> Token {
        match read_number(&self.text[self.at..]) {
            Some((number, len)) => {
                self.at += len;
                Token::Number(number)
            }
            None => self.wrong("invalid number"),
        }
    }

    fn string(&mut self) -> Token {
        let mut out = Vec::new();
        self.at += 1;
        loop {
            match self.byte(0) {
                b'"' => break,
                0 => return self.wrong("unexpected end of string"),
                b'\\' => {
                    let byte = match self.byte(1) {
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => 0x08,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 0x0c,
                        b'r' => b'\r',
                        b'u' => {
                            let Some(len) = self.unicode(&mut out) else {
                                return self.wrong("invalid unicode escape code");
                            };
                            self.at += len;
                            continue;
                        }
                        _ => return self.wrong("invalid escape code"),
                    };
                    out.push(byte);
                    self.at += 2;
                }
                byte => {
                    out.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Token::Text(out)
    }

    /// Reads `\uXXXX`, or two of them that belong together; how long that was.
    fn unicode(&self, out: &mut Vec<u8>) -> Option<usize> {
        const ESCAPE: usize = 6;
        let first = self.unit(2)?;
        let (code, len) = match first {
            0xd800..=0xdbff => {
                if self.byte(ESCAPE) != b'\\' || self.byte(ESCAPE + 1) != b'u' {
                    return None;
                }
                let second = self.unit(ESCAPE + 2).filter(|unit| (0xdc00..=0xdfff).contains(unit))?;
                (((first & 0x3ff) << 10 | second & 0x3ff) + 0x1_0000, 2 * ESCAPE)
            }
            0xdc00..=0xdfff => return None,
            other => (other, ESCAPE),
        };
        let character = char::from_u32(code)?;
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Some(len)
    }

    fn unit(&self, ahead: usize) -> Option<u32> {
        (0..4).try_fold(0, |unit, digit| Some(unit << 4 | char::from(self.byte(ahead + digit)).to_digit(16)?))
    }
}

/// A table that is being read.
enum Reading {
    /// An array with so many elements so far.
    Array(Table, usize),
    /// An object, and the key of the value that comes.
    Object(Table, mlua::LuaString),
}

struct Decoder<'a> {
    arguments: &'a Arguments<'a>,
    tokens: Tokens<'a>,
    depth_max: i32,
    open: Vec<Reading>,
}

fn decode(arguments: &Arguments<'_>, text: &[u8], options: &Options) -> mlua::Result<Value> {
    if text.len() >= 2 && text[..2].contains(&0) {
        return Err(arguments.failed("JSON parser does not support UTF-16 or UTF-32"));
    }
    let tokens = Tokens { text, at: 0, begin: 0, decodes_strange: options.decodes_strange };
    let mut decoder = Decoder { arguments, tokens, depth_max: options.decode_depth_max, open: Vec::new() };
    let value = decoder.decode()?;
    match decoder.tokens.next() {
        Token::End => Ok(value),
        other => Err(decoder.unexpected("the end", &other)),
    }
}

impl Decoder<'_> {
    fn unexpected(&self, expected: &str, found: &Token) -> mlua::Error {
        let at = self.tokens.begin + 1;
        self.arguments.failed(&format!("Expected {expected} but found {} at character {at}", found.name()))
    }

    /// Reads one value with all that is in it.
    fn decode(&mut self) -> mlua::Result<Value> {
        let mut token = self.tokens.next();
        loop {
            let Some(mut value) = self.value(token)? else {
                // A table was begun, and its first element stands next.
                token = self.tokens.next();
                continue;
            };
            // The value ends those tables whose end follows.
            loop {
                match self.place(value)? {
                    Placed::Whole(whole) if self.open.is_empty() => return Ok(whole),
                    Placed::Whole(whole) => value = whole,
                    Placed::More(next) => {
                        token = next;
                        break;
                    }
                }
            }
        }
    }

    /// The value that a token is, or nothing if it begins a table that is not empty.
    fn value(&mut self, token: Token) -> mlua::Result<Option<Value>> {
        let lua = self.arguments.lua;
        Ok(Some(match token {
            Token::Text(text) => Value::String(lua.create_string(&text)?),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(is_true) => Value::Boolean(is_true),
            Token::Null => Value::NULL,
            Token::ArrayBegin => {
                let table = self.descend()?;
                let before = self.tokens.at;
                if self.tokens.next() == Token::ArrayEnd {
                    return Ok(Some(Value::Table(table)));
                }
                self.tokens.at = before;
                self.open.push(Reading::Array(table, 0));
                return Ok(None);
            }
            Token::ObjectBegin => {
                let table = self.descend()?;
                match self.tokens.next() {
                    Token::ObjectEnd => return Ok(Some(Value::Table(table))),
                    first => {
                        let key = self.key(first)?;
                        self.open.push(Reading::Object(table, key));
                        return Ok(None);
                    }
                }
            }
            other => return Err(self.unexpected("value", &other)),
        }))
    }

    fn descend(&self) -> mlua::Result<Table> {
        let depth = self.open.len() + 1;
        let is_allowed = i32::try_from(depth).is_ok_and(|depth| depth <= self.depth_max);
        if !is_allowed || depth > LEVELS_MAX {
            let at = self.tokens.at;
            let what = format!("Found too many nested data structures ({depth}) at character {at}");
            return Err(self.arguments.failed(&what));
        }
        self.arguments.lua.create_table()
    }

    /// The key that a token is, with the colon behind it.
    fn key(&mut self, token: Token) -> mlua::Result<mlua::LuaString> {
        let Token::Text(text) = token else { return Err(self.unexpected("object key string", &token)) };
        let key = self.arguments.lua.create_string(&text)?;
        match self.tokens.next() {
            Token::Colon => Ok(key),
            other => Err(self.unexpected("colon", &other)),
        }
    }

    /// Puts a value where it belongs, and looks at what follows.
    fn place(&mut self, value: Value) -> mlua::Result<Placed> {
        match self.open.pop() {
            None => Ok(Placed::Whole(value)),
            Some(Reading::Array(table, len)) => {
                table.raw_set(len + 1, value)?;
                match self.tokens.next() {
                    Token::ArrayEnd => Ok(Placed::Whole(Value::Table(table))),
                    Token::Comma => {
                        self.open.push(Reading::Array(table, len + 1));
                        Ok(Placed::More(self.tokens.next()))
                    }
                    other => Err(self.unexpected("comma or array end", &other)),
                }
            }
            Some(Reading::Object(table, key)) => {
                table.raw_set(key, value)?;
                match self.tokens.next() {
                    Token::ObjectEnd => Ok(Placed::Whole(Value::Table(table))),
                    Token::Comma => {
                        let next = self.tokens.next();
                        let key = self.key(next)?;
                        self.open.push(Reading::Object(table, key));
                        Ok(Placed::More(self.tokens.next()))
                    }
                    other => Err(self.unexpected("comma or object end", &other)),
                }
            }
        }
    }
}

/// What became of a value.
enum Placed {
    /// It, or the table that it was the last of, is whole.
    Whole(Value),
    /// The table goes on with a value that begins with this token.
    More(Token),
}

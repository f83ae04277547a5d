//! `cmsgpack`: values as `MessagePack` and back, with the behaviour of lua-cmsgpack 0.4.0.
//!
//! A table whose keys are 1 to n is an array, any other a map. What lies more than sixteen tables deep is nil. Whole numbers
//! take the shortest form that holds them, others four bytes if that loses nothing.

use mlua::{IntoLua, Lua, MultiValue, Table, Value};

use super::super::arguments::Arguments;
use super::super::thrown::Thrown;
use super::add;

/// Levels of tables that are written.
const LEVELS_MAX: usize = 16;
/// Bytes that one call makes at most.
const OUT_BYTES_MAX: usize = 512 << 20;
/// Places of the interpreter's stack that reading takes: one for each value, two for each table that is open.
const PLACES_MAX: usize = 7_990;

pub(super) fn table(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    add(lua, &table, "pack", |arguments| pack(&arguments))?;
    add(lua, &table, "unpack", |arguments| unpack(&arguments, 0, 0))?;
    add(lua, &table, "unpack_one", |arguments| {
        let offset = arguments.integer_or(2, 0)?;
        unpack(&arguments, 1, offset)
    })?;
    add(lua, &table, "unpack_limit", |arguments| {
        let limit = arguments.integer(2)?;
        let offset = arguments.integer_or(3, 0)?;
        unpack(&arguments, limit, offset)
    })?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.raw_set("_COPYRIGHT", "Copyright (C) 2012, Redis Ltd.")?;
    table.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(table)
}

fn pack(arguments: &Arguments<'_>) -> mlua::Result<Value> {
    if arguments.len() == 0 {
        return Err(arguments.wrong(0, "MessagePack pack needs input."));
    }
    let mut packer = Packer { arguments, out: Vec::new() };
    for value in arguments.all() {
        packer.value(value, 0)?;
    }
    arguments.lua.create_string(&packer.out).map(Value::String)
}

struct Packer<'a> {
    arguments: &'a Arguments<'a>,
    out: Vec<u8>,
}

impl Packer<'_> {
    fn value(&mut self, value: &Value, level: usize) -> mlua::Result<()> {
        if self.out.len() > OUT_BYTES_MAX {
            return Err(self.arguments.failed("not enough memory"));
        }
        match value {
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Boolean(is_true) => self.out.push(0xc2 + u8::from(*is_true)),
            Value::Integer(integer) => self.integer(*integer),
            Value::Number(number) => self.number(*number),
            Value::Table(table) if level < LEVELS_MAX => return self.table(table, level),
            _ => self.out.push(0xc0),
        }
        Ok(())
    }

    /// A mark, and a number behind it as so many bytes.
    fn marked<const N: usize>(&mut self, mark: u8, bytes: [u8; N]) {
        self.out.push(mark);
        self.out.extend_from_slice(&bytes);
    }

    fn integer(&mut self, integer: i64) {
        match integer {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "one byte holds it")]
            -32..=127 => self.out.push(integer as u8),
            128.. => match (u8::try_from(integer), u16::try_from(integer), u32::try_from(integer)) {
                (Ok(byte), _, _) => self.marked(0xcc, [byte]),
                (_, Ok(short), _) => self.marked(0xcd, short.to_be_bytes()),
                (_, _, Ok(middle)) => self.marked(0xce, middle.to_be_bytes()),
                _ => self.marked(0xcf, integer.to_be_bytes()),
            },
            _ => match (i8::try_from(integer), i16::try_from(integer), i32::try_from(integer)) {
                (Ok(byte), _, _) => self.marked(0xd0, byte.to_be_bytes()),
                (_, Ok(short), _) => self.marked(0xd1, short.to_be_bytes()),
                (_, _, Ok(middle)) => self.marked(0xd2, middle.to_be_bytes()),
                _ => self.marked(0xd3, integer.to_be_bytes()),
            },
        }
    }

    fn number(&mut self, number: f64) {
        if let Some(integer) = whole(number) {
            return self.integer(integer);
        }
        #[expect(clippy::cast_possible_truncation, reason = "it is looked whether it fits")]
        let short = number as f32;
        #[expect(clippy::float_cmp, reason = "whether nothing is lost")]
        if f64::from(short) == number {
            self.marked(0xca, short.to_be_bytes());
        } else {
            self.marked(0xcb, number.to_be_bytes());
        }
    }

    fn text(&mut self, text: &[u8]) {
        match (u8::try_from(text.len()), u16::try_from(text.len())) {
            (Ok(len), _) if len < 32 => self.out.push(0xa0 | len),
            (Ok(len), _) => self.marked(0xd9, [len]),
            (_, Ok(len)) => self.marked(0xda, len.to_be_bytes()),
            _ => self.marked(0xdb, len_of(text.len())),
        }
        self.out.extend_from_slice(text);
    }

    fn head(&mut self, few: u8, mark: u8, len: usize) {
        match (u8::try_from(len), u16::try_from(len)) {
            (Ok(len), _) if len < 16 => self.out.push(few | len),
            (_, Ok(len)) => self.marked(mark, len.to_be_bytes()),
            _ => self.marked(mark + 1, len_of(len)),
        }
    }

    fn table(&mut self, table: &Table, level: usize) -> mlua::Result<()> {
        let (count, is_array) = shape(table)?;
        if is_array {
            self.head(0x90, 0xdc, count);
            for at in 1..=count {
                self.value(&table.raw_get(at)?, level + 1)?;
            }
            return Ok(());
        }
        self.head(0x80, 0xde, count);
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, level + 1)?;
            self.value(&value, level + 1)?;
        }
        Ok(())
    }
}

fn len_of(len: usize) -> [u8; 4] {
    #[expect(clippy::cast_possible_truncation, reason = "what is longer was refused")]
    let len = len as u32;
    len.to_be_bytes()
}

/// A number that is whole and fits 64 bits.
fn whole(number: f64) -> Option<i64> {
    const END: f64 = 9_223_372_036_854_775_808.0;
    let is_whole = (-END..END).contains(&number) && number.fract() == 0.0;
    #[expect(clippy::cast_possible_truncation, reason = "it fits")]
    is_whole.then_some(number as i64)
}

/// How many elements a table has, and whether its keys are 1 to that.
fn shape(table: &Table) -> mlua::Result<(usize, bool)> {
    let (mut count, mut greatest, mut is_array) = (0_usize, 0, true);
    table.for_each(|key: Value, _: Value| {
        count += 1;
        let index = match key {
            Value::Integer(index) => i32::try_from(index).ok(),
            _ => None,
        };
        match index {
            Some(index) if index > 0 => greatest = greatest.max(index),
            _ => is_array = false,
        }
        Ok(())
    })?;
    Ok((count, is_array && usize::try_from(greatest) == Ok(count)))
}

/// Why bytes cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Short,
    Format,
}

/// A value, or the beginning of a table.
enum Item<'a> {
    Integer(i64),
    Number(f64),
    Text(&'a [u8]),
    Nil,
    Boolean(bool),
    Array(usize),
    Map(usize),
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Broken::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Broken::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn len8(&mut self) -> Result<usize, Broken> {
        self.number().map(|[len]| usize::from(len))
    }

    fn len16(&mut self) -> Result<usize, Broken> {
        self.number().map(|len| usize::from(u16::from_be_bytes(len)))
    }

    fn len32(&mut self) -> Result<usize, Broken> {
        self.number().map(|len| usize::try_from(u32::from_be_bytes(len)).expect("memory is that large"))
    }

    fn text(&mut self, len: usize) -> Result<Item<'a>, Broken> {
        self.take(len).map(Item::Text)
    }

    fn item(&mut self) -> Result<Item<'a>, Broken> {
        let [mark] = self.number()?;
        Ok(match mark {
            0..=0x7f => Item::Integer(i64::from(mark)),
            0xe0..=0xff => Item::Integer(i64::from(mark.cast_signed())),
            0x80..=0x8f => Item::Map(usize::from(mark & 0xf)),
            0x90..=0x9f => Item::Array(usize::from(mark & 0xf)),
            0xa0..=0xbf => return self.text(usize::from(mark & 0x1f)),
            0xc0 => Item::Nil,
            0xc2 | 0xc3 => Item::Boolean(mark == 0xc3),
            0xca => Item::Number(f64::from(f32::from_be_bytes(self.number()?))),
            0xcb => Item::Number(f64::from_be_bytes(self.number()?)),
            0xcc => Item::Integer(i64::from(u8::from_be_bytes(self.number()?))),
            0xcd => Item::Integer(i64::from(u16::from_be_bytes(self.number()?))),
            0xce => Item::Integer(i64::from(u32::from_be_bytes(self.number()?))),
            0xd0 => Item::Integer(i64::from(i8::from_be_bytes(self.number()?))),
            0xd1 => Item::Integer(i64::from(i16::from_be_bytes(self.number()?))),
            0xd2 => Item::Integer(i64::from(i32::from_be_bytes(self.number()?))),
            // One that is too great becomes negative, as Lua's integers do.
            0xcf | 0xd3 => Item::Integer(i64::from_be_bytes(self.number()?)),
            0xd9 => {
                let len = self.len8()?;
                return self.text(len);
            }
            0xda => {
                let len = self.len16()?;
                return self.text(len);
            }
            0xdb => {
                let len = self.len32()?;
                return self.text(len);
            }
            0xdc => Item::Array(self.len16()?),
            0xdd => Item::Array(self.len32()?),
            0xde => Item::Map(self.len16()?),
            0xdf => Item::Map(self.len32()?),
            0xc1 | 0xc4..=0xc9 | 0xd4..=0xd8 => return Err(Broken::Format),
        })
    }
}

/// A table that is being read.
enum Open {
    /// An array of so many elements, after so many of them.
    Array(Table, usize, usize),
    /// A map that so many pairs are left of, and the key of the present one if it was read.
    Map(Table, usize, Option<Value>),
}

fn unpack(arguments: &Arguments<'_>, limit: i64, offset: i64) -> mlua::Result<MultiValue> {
    let data = arguments.bytes(1)?;
    let is_all = limit == 0 && offset == 0;
    #[expect(clippy::cast_possible_truncation, reason = "as C writes them")]
    let (shown, len) = (offset as i32, data.len() as i32);
    let (Ok(limit), Ok(offset)) = (usize::try_from(limit), usize::try_from(offset)) else {
        let what = format!("Invalid request to unpack with offset of {shown} and limit of {len}.");
        return Err(arguments.failed(&what));
    };
    let Some(rest) = data.get(offset..) else {
        return Err(arguments.failed(&format!("Start offset {shown} greater than input length {len}.")));
    };
    let limit = if is_all { usize::MAX } else { limit };
    let (mut reader, mut values) = (Reader { rest }, MultiValue::new());
    while values.len() < limit && !reader.rest.is_empty() {
        let value = unpack_value(arguments, &mut reader, values.len())?;
        values.push_back(value);
    }
    if !is_all {
        let next = if reader.rest.is_empty() { -1 } else { position(data.len() - reader.rest.len()) };
        values.push_front(Value::Integer(next));
    }
    Ok(values)
}

fn position(at: usize) -> i64 {
    i64::try_from(at).expect("it is a place in memory")
}

/// Reads one value with all that is in it, where so many places are taken already.
fn unpack_value(arguments: &Arguments<'_>, reader: &mut Reader<'_>, places: usize) -> mlua::Result<Value> {
    let lua = arguments.lua;
    let mut open: Vec<Open> = Vec::new();
    loop {
        let item = reader.item().map_err(|broken| match broken {
            Broken::Short => arguments.failed("Missing bytes in input."),
            Broken::Format => arguments.failed("Bad data format in input."),
        })?;
        if places + 2 * open.len() >= PLACES_MAX {
            const WHAT: &str =
                "stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)";
            return Err(arguments.failed(WHAT));
        }
        let mut value = match item {
            Item::Integer(integer) => Value::Integer(integer),
            Item::Number(number) => Value::Number(number),
            Item::Text(text) => Value::String(lua.create_string(text)?),
            Item::Nil => Value::Nil,
            Item::Boolean(is_true) => Value::Boolean(is_true),
            Item::Array(0) | Item::Map(0) => lua.create_table()?.into_lua(lua)?,
            Item::Array(len) => {
                open.push(Open::Array(lua.create_table()?, len, 0));
                continue;
            }
            Item::Map(len) => {
                open.push(Open::Map(lua.create_table()?, len, None));
                continue;
            }
        };
        // The value ends those tables that it is the last of.
        loop {
            match open.pop() {
                None => return Ok(value),
                Some(Open::Array(table, len, at)) => {
                    table.raw_set(at + 1, value)?;
                    if at + 1 < len {
                        open.push(Open::Array(table, len, at + 1));
                        break;
                    }
                    value = Value::Table(table);
                }
                Some(Open::Map(table, left, None)) => {
                    open.push(Open::Map(table, left, Some(value)));
                    break;
                }
                Some(Open::Map(table, left, Some(key))) => {
                    put(&table, key, value)?;
                    if left > 1 {
                        open.push(Open::Map(table, left - 1, None));
                        break;
                    }
                    value = Value::Table(table);
                }
            }
        }
    }
}

/// Puts a value behind a key, which must be one that tables can have.
fn put(table: &Table, key: Value, value: Value) -> mlua::Result<()> {
    match key {
        Value::Nil => Err(Thrown::Text(b"table index is nil".to_vec()).into()),
        Value::Number(number) if number.is_nan() => Err(Thrown::Text(b"table index is NaN".to_vec()).into()),
        key => table.raw_set(key, value),
    }
}

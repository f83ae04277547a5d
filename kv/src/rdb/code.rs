//! The numbers of the format: types of values, and opcodes, which stand where a type could.

/// The version that is written unless something needs `VERSION_VALKEY`, and that every payload without such a thing has.
pub(super) const VERSION: u16 = 11;
/// The version before it, of Redis 7.0: without packed sets, and without the times at which consumers were active.
pub(super) const VERSION_REDIS_7: u16 = 10;
/// The version of Valkey 9, the greatest that is read.
pub(super) const VERSION_VALKEY: u16 = 80;
/// Versions from here to before `VERSION_VALKEY` belong to Redis after it left the common format.
pub(super) const VERSION_FOREIGN: u16 = 12;
/// The first version whose files end with a checksum.
pub(super) const VERSION_CHECKSUM: u16 = 5;

/// Types of values.
pub(super) mod kind {
    pub(crate) const STRING: u8 = 0;
    pub(crate) const LIST: u8 = 1;
    pub(crate) const SET: u8 = 2;
    /// Scores as text.
    pub(crate) const ZSET: u8 = 3;
    pub(crate) const HASH: u8 = 4;
    /// Scores as eight bytes.
    pub(crate) const ZSET_2: u8 = 5;
    pub(crate) const MODULE_PRE_RELEASE: u8 = 6;
    pub(crate) const MODULE: u8 = 7;
    pub(crate) const HASH_ZIPMAP: u8 = 9;
    pub(crate) const LIST_ZIPLIST: u8 = 10;
    pub(crate) const SET_INTSET: u8 = 11;
    pub(crate) const ZSET_ZIPLIST: u8 = 12;
    pub(crate) const HASH_ZIPLIST: u8 = 13;
    /// Nodes are ziplists.
    pub(crate) const LIST_QUICKLIST: u8 = 14;
    pub(crate) const STREAM: u8 = 15;
    pub(crate) const HASH_LISTPACK: u8 = 16;
    pub(crate) const ZSET_LISTPACK: u8 = 17;
    /// Nodes are listpacks, or single elements.
    pub(crate) const LIST_QUICKLIST_2: u8 = 18;
    /// With the counts that outlive entries.
    pub(crate) const STREAM_2: u8 = 19;
    pub(crate) const SET_LISTPACK: u8 = 20;
    /// With the times at which consumers were active.
    pub(crate) const STREAM_3: u8 = 21;
    /// Valkey 9: fields that expire. (Release candidates of Redis 7.4 had another form under this number.)
    pub(crate) const HASH_2: u8 = 22;
    /// Redis 7.4: fields that expire, relative to the first of them.
    pub(crate) const HASH_EXPIRING: u8 = 24;
    /// Redis 7.4: the same as a listpack of triples.
    pub(crate) const HASH_LISTPACK_EXPIRING: u8 = 25;
}

/// What stands where a type could.
pub(super) mod opcode {
    /// Valkey 9: slots that were being imported.
    pub(crate) const SLOT_IMPORT: u8 = 243;
    /// Redis 7.4: how many keys a slot has.
    pub(crate) const SLOT_INFO: u8 = 244;
    /// A library of functions.
    pub(crate) const LIBRARY: u8 = 245;
    pub(crate) const LIBRARY_PRE_RELEASE: u8 = 246;
    pub(crate) const MODULE: u8 = 247;
    /// Seconds since the next key was used.
    pub(crate) const IDLE: u8 = 248;
    /// How often the next key was used.
    pub(crate) const FREQUENCY: u8 = 249;
    /// A fact about the file.
    pub(crate) const FACT: u8 = 250;
    /// How many keys the database has, and how many of them expire.
    pub(crate) const SIZES: u8 = 251;
    pub(crate) const EXPIRY_MS: u8 = 252;
    pub(crate) const EXPIRY_S: u8 = 253;
    pub(crate) const DATABASE: u8 = 254;
    pub(crate) const END: u8 = 255;
}

/// The first two bits of a length, and what a byte that is none says instead.
pub(super) mod length {
    pub(crate) const SIX_BITS: u8 = 0;
    pub(crate) const FOURTEEN_BITS: u8 = 1;
    pub(crate) const ENCODED: u8 = 3;
    /// The whole byte: four bytes follow, big-endian.
    pub(crate) const FOUR_BYTES: u8 = 0x80;
    /// The whole byte: eight bytes follow, big-endian.
    pub(crate) const EIGHT_BYTES: u8 = 0x81;
    /// The whole byte: an integer of one byte follows, and so on; little-endian.
    pub(crate) const INTEGER_8: u8 = 0xc0;
    pub(crate) const INTEGER_16: u8 = 0xc1;
    pub(crate) const INTEGER_32: u8 = 0xc2;
    pub(crate) const COMPRESSED: u8 = 0xc3;
}

/// How the nodes of a list are kept.
pub(super) mod container {
    /// One element as it is.
    pub(crate) const PLAIN: u64 = 1;
    pub(crate) const PACKED: u64 = 2;
}

/// What stands before the parts of a module's value.
pub(super) mod module {
    pub(crate) const END: u64 = 0;
    pub(crate) const SIGNED: u64 = 1;
    pub(crate) const UNSIGNED: u64 = 2;
    pub(crate) const FLOAT: u64 = 3;
    pub(crate) const DOUBLE: u64 = 4;
    pub(crate) const TEXT: u64 = 5;
}

/// Bits of the flags of a stream's entry.
pub(super) mod entry_flag {
    pub(crate) const REMOVED: i64 = 1;
    /// The names are those of the node.
    pub(crate) const SAME_NAMES: i64 = 2;
}

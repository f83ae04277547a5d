//! What is behind a key that is no string: one of the collection types.

use super::dict::Dict;
use super::hash::Hash;
use super::list::List;
use super::set::Set;
use super::stream::Stream;
use super::zset::ZSet;
use crate::keyspace::Kind;

/// What is behind a key that is no string.
#[derive(Debug, Clone)]
pub(crate) enum Object {
    List(List),
    Set(Set),
    SortedSet(ZSet),
    Hash(Hash),
    /// Boxed: it is much larger than the others, and rarer.
    Stream(Box<Stream>),
}

impl Object {
    /// Which of the types it is.
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::List(_) => Kind::List,
            Self::Set(_) => Kind::Set,
            Self::SortedSet(_) => Kind::SortedSet,
            Self::Hash(_) => Kind::Hash,
            Self::Stream(_) => Kind::Stream,
        }
    }

    /// The map that it is, or that finds its members, if it is a large one.
    pub(crate) fn dict(&self) -> Option<&Dict> {
        match self {
            Self::Set(set) => set.dict(),
            Self::SortedSet(set) => set.dict(),
            Self::Hash(hash) => hash.dict(),
            Self::List(_) | Self::Stream(_) => None,
        }
    }

    /// About how many pieces of memory it has, each of which takes time to give back.
    pub(crate) fn parts(&self) -> usize {
        let elements = |is_table: bool, len: usize| if is_table { len } else { 1 };
        match self {
            Self::List(list) => list.parts(),
            Self::Set(set) => elements(set.encoding() == "hashtable", set.len()),
            Self::SortedSet(set) => elements(set.encoding() == "skiplist", set.len()),
            Self::Hash(hash) => elements(hash.encoding() == "hashtable", hash.len()),
            Self::Stream(stream) => stream.parts(),
        }
    }

    /// Bytes taken from the allocator, without its own bookkeeping.
    pub(crate) fn bytes_held(&self) -> usize {
        match self {
            Self::List(list) => list.bytes_held(),
            Self::Set(set) => set.bytes_held(),
            Self::SortedSet(set) => set.bytes_held(),
            Self::Hash(hash) => hash.bytes_held(),
            Self::Stream(stream) => size_of::<Stream>() + stream.bytes_held(),
        }
    }

    /// As `OBJECT ENCODING` says it.
    pub(crate) fn encoding(&self) -> &'static str {
        match self {
            Self::List(list) => list.encoding(),
            Self::Set(set) => set.encoding(),
            Self::SortedSet(set) => set.encoding(),
            Self::Hash(hash) => hash.encoding(),
            Self::Stream(stream) => stream.encoding(),
        }
    }
}

/// A type that an [`Object`] may be.
pub(crate) trait Collection: Sized {
    /// What a key with such a value is.
    const KIND: Kind;

    /// The value in an object of this kind.
    fn of(object: &Object) -> Option<&Self>;

    /// The same, to change.
    fn of_mut(object: &mut Object) -> Option<&mut Self>;

    /// As an object.
    fn into_object(self) -> Object;

    /// Whether it should be gone.
    fn is_empty(&self) -> bool;
}

/// Says which variant a type is.
macro_rules! collection {
    ($kind:ident: $type:ty) => {
        impl Collection for $type {
            const KIND: Kind = Kind::$kind;

            fn of(object: &Object) -> Option<&Self> {
                if let Object::$kind(value) = object { Some(value) } else { None }
            }

            fn of_mut(object: &mut Object) -> Option<&mut Self> {
                if let Object::$kind(value) = object { Some(value) } else { None }
            }

            fn into_object(self) -> Object {
                Object::$kind(self)
            }

            fn is_empty(&self) -> bool {
                <$type>::is_empty(self)
            }
        }
    };
}

collection!(List: List);
collection!(Set: Set);
collection!(SortedSet: ZSet);
collection!(Hash: Hash);

impl Collection for Stream {
    const KIND: Kind = Kind::Stream;

    fn of(object: &Object) -> Option<&Self> {
        if let Object::Stream(value) = object { Some(value) } else { None }
    }

    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        if let Object::Stream(value) = object { Some(value) } else { None }
    }

    fn into_object(self) -> Object {
        Object::Stream(Box::new(self))
    }

    /// Never: a stream without entries still knows its groups and its last id.
    fn is_empty(&self) -> bool {
        false
    }
}

//! What is behind a key that is no string: one of the collection types.

use super::list::List;
use crate::keyspace::Kind;

/// What is behind a key that is no string.
#[derive(Debug)]
pub(crate) enum Object {
    List(List),
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
                match object {
                    Object::$kind(value) => Some(value),
                    #[allow(unreachable_patterns, reason = "there may be one kind only")]
                    _ => None,
                }
            }

            fn of_mut(object: &mut Object) -> Option<&mut Self> {
                match object {
                    Object::$kind(value) => Some(value),
                    #[allow(unreachable_patterns, reason = "there may be one kind only")]
                    _ => None,
                }
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

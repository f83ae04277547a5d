//! The collection types: what is behind a key that is no string. Nothing here knows a key, a client or a reply.

/// What is behind a key that is no string.
#[derive(Debug)]
pub(crate) enum Object {}

/// A type that an [`Object`] may be.
pub(crate) trait Collection: Sized {
    /// What a key with such a value is.
    const KIND: crate::keyspace::Kind;

    /// The value in an object of this kind.
    fn of(object: &Object) -> Option<&Self>;

    /// The same, to change.
    fn of_mut(object: &mut Object) -> Option<&mut Self>;

    /// As an object.
    fn into_object(self) -> Object;

    /// Whether it should be gone.
    fn is_empty(&self) -> bool;
}

//! XML of S3: a bounded reader that refuses everything that documents of S3 do not need, and a writer.
//!
//! The reader gives a tree of elements and texts. It refuses DTDs, processing instructions and entities of one's own, so
//! that no document expands. Attributes and namespaces are passed over.

use core::fmt;

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesRef, Event};

/// Longest document that is read, bytes. A completion of 10,000 parts with SHA-256 takes about 2 MB.
pub const DOCUMENT_BYTES_MAX: usize = 4 << 20;
/// Elements inside each other.
pub const DEPTH_MAX: usize = 8;
/// Elements of a document: 10,000 parts with their number, entity tag and checksum.
pub const ELEMENTS_MAX: usize = 64 * 1_024;

/// A document is not well formed, or has what no document of S3 has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XmlError;

impl fmt::Display for XmlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the document is not XML as S3 uses it")
    }
}

impl core::error::Error for XmlError {}

/// One element.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Element {
    /// Its name, without a namespace.
    pub name: String,
    /// Its own text, without that of the elements in it.
    pub text: String,
    /// The elements in it.
    pub children: Vec<Self>,
}

impl Element {
    /// Reads a document.
    ///
    /// # Errors
    /// It is not well formed, is larger than a limit of this module, or has a DTD, a processing instruction or an entity.
    pub fn decode(bytes: &[u8]) -> Result<Self, XmlError> {
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(XmlError);
        }
        let text = core::str::from_utf8(bytes).map_err(|_| XmlError)?;
        let mut reader = Reader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
        reader.config_mut().expand_empty_elements = true;
        let mut tree = Tree::default();
        loop {
            match reader.read_event().map_err(|_| XmlError)? {
                Event::Start(start) => tree.open(start.local_name().as_ref())?,
                Event::End(_) => tree.close()?,
                Event::Text(text) => tree.push(&text.xml10_content())?,
                Event::CData(text) => tree.push(&text.xml10_content())?,
                Event::GeneralRef(reference) => tree.push_char(&reference)?,
                Event::Decl(_) | Event::Comment(_) => {}
                Event::Empty(_) | Event::PI(_) | Event::DocType(_) => return Err(XmlError),
                Event::Eof => return tree.finish(),
            }
        }
    }

    /// The first element in it of that name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The text of the first element in it of that name.
    #[must_use]
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.as_str())
    }
}

/// The elements that are open, the outermost first, and the root once it is closed.
#[derive(Default)]
struct Tree {
    open: Vec<Element>,
    root: Option<Element>,
    count: usize,
}

impl Tree {
    fn open(&mut self, name: &str) -> Result<(), XmlError> {
        self.count += 1;
        if self.root.is_some() || self.open.len() == DEPTH_MAX || self.count > ELEMENTS_MAX {
            return Err(XmlError);
        }
        self.open.push(Element { name: name.to_owned(), ..Element::default() });
        Ok(())
    }

    fn close(&mut self) -> Result<(), XmlError> {
        let mut closed = self.open.pop().ok_or(XmlError)?;
        // Space between elements is layout.
        if !closed.children.is_empty() && closed.text.trim().is_empty() {
            closed.text.clear();
        }
        match self.open.last_mut() {
            Some(parent) => parent.children.push(closed),
            None => self.root = Some(closed),
        }
        Ok(())
    }

    fn push(&mut self, text: &str) -> Result<(), XmlError> {
        // XML cannot hold it, escaped or not.
        if text.contains('\0') {
            return Err(XmlError);
        }
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => return Err(XmlError),
        }
        Ok(())
    }

    fn push_char(&mut self, reference: &BytesRef<'_>) -> Result<(), XmlError> {
        let element = self.open.last_mut().ok_or(XmlError)?;
        match reference.resolve_char_ref().map_err(|_| XmlError)? {
            Some(char) => element.text.push(char),
            None => element.text.push_str(resolve_xml_entity(reference).ok_or(XmlError)?),
        }
        Ok(())
    }

    fn finish(self) -> Result<Element, XmlError> {
        if self.open.is_empty() { self.root.ok_or(XmlError) } else { Err(XmlError) }
    }
}

/// A document that is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XmlWriter {
    text: String,
    open: Vec<&'static str>,
}

impl XmlWriter {
    /// A document with this root, in the namespace of S3.
    #[must_use]
    pub fn new(root: &'static str) -> Self {
        Self::within(root, "http://s3.amazonaws.com/doc/2006-03-01/")
    }

    /// A document with this root, in another namespace.
    #[must_use]
    pub fn within(root: &'static str, namespace: &str) -> Self {
        let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root} xmlns=\"{namespace}\">");
        Self { text, open: vec![root] }
    }

    /// A document with this root, in no namespace: errors have none.
    #[must_use]
    pub fn bare(root: &'static str) -> Self {
        Self { text: format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root}>"), open: vec![root] }
    }

    /// An element around what `inside` writes.
    pub fn element(&mut self, name: &'static str, inside: impl FnOnce(&mut Self)) {
        self.open(name, name);
        inside(self);
        self.close();
    }

    /// An element whose start tag has attributes.
    pub fn element_with(&mut self, name: &'static str, attributes: &str, inside: impl FnOnce(&mut Self)) {
        self.open(name, &format!("{name} {attributes}"));
        inside(self);
        self.close();
    }

    fn open(&mut self, name: &'static str, tag: &str) {
        self.text.push('<');
        self.text.push_str(tag);
        self.text.push('>');
        self.open.push(name);
    }

    fn close(&mut self) {
        let name = self.open.pop().expect("an element was opened");
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push('>');
    }

    /// An element with a text.
    pub fn text(&mut self, name: &'static str, value: &str) {
        self.element(name, |xml| xml.push_escaped(value));
    }

    /// Text of the element that is open.
    pub fn content(&mut self, value: &str) {
        self.push_escaped(value);
    }

    /// An element with a number.
    pub fn number(&mut self, name: &'static str, value: u64) {
        self.text(name, &value.to_string());
    }

    /// An element with `true` or `false`.
    pub fn flag(&mut self, name: &'static str, value: bool) {
        self.text(name, if value { "true" } else { "false" });
    }

    /// Escapes what is markup, and control characters, which a reader would otherwise change or refuse.
    fn push_escaped(&mut self, value: &str) {
        for char in value.chars() {
            match char {
                '<' => self.text.push_str("&lt;"),
                '>' => self.text.push_str("&gt;"),
                '&' => self.text.push_str("&amp;"),
                '"' => self.text.push_str("&quot;"),
                '\t' | '\n' => self.text.push(char),
                char if char.is_control() => self.text.push_str(&format!("&#{};", u32::from(char))),
                char => self.text.push(char),
            }
        }
    }

    /// The document.
    ///
    /// # Panics
    /// An element is open but the root.
    #[must_use]
    pub fn finish(mut self) -> String {
        assert!(self.open.len() == 1, "an element is open");
        self.close();
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written() {
        let mut xml = XmlWriter::bare("A");
        xml.element("B", |xml| xml.content("<&>"));
        xml.text("C", "c");
        xml.number("D", 7);
        xml.flag("E", true);
        let text = xml.finish();
        assert!(text.contains("<A><B>&lt;&amp;&gt;</B><C>c</C><D>7</D><E>true</E></A>"), "{text}");
        let mut xml = XmlWriter::within("A", "space");
        xml.element_with("B", "c=\"d\"", |xml| xml.flag("E", false));
        xml.text("F", "\"\t\r\u{1}ä\n");
        let text = xml.finish();
        let expected = "<A xmlns=\"space\"><B c=\"d\"><E>false</E></B><F>&quot;\t&#13;&#1;ä\n</F></A>";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn read() {
        let text = "\u{feff}<?xml version=\"1.0\"?>\n<!-- c --><a xmlns=\"n\" x='1'> <b>1 &lt;&#65;&#x42;</b>\r\n<s:c/><b><![CDATA[<x>]]></b></a>\n";
        let root = Element::decode(text.as_bytes()).expect("a document");
        assert_eq!((root.name.as_str(), root.text.as_str(), root.children.len()), ("a", "", 3));
        assert_eq!((root.text_of("b"), root.text_of("c"), root.text_of("d")), (Some("1 <AB"), Some(""), None));
        assert_eq!(root.children[2].text, "<x>");
        // Space is layout between elements only.
        let root = Element::decode(b"<a>text <b> </b></a>").expect("a document");
        assert_eq!((root.text.as_str(), root.text_of("b")), ("text ", Some(" ")));
        assert_eq!(XmlError.to_string(), "the document is not XML as S3 uses it");
    }

    #[test]
    fn refused() {
        let wrong = [
            "",
            "text",
            "<a>",
            "<a></b>",
            "</a>",
            "<a/><b/>",
            "<a/>text",
            "<a>&b;</a>",
            "<a>&#0;</a>",
            "<a>\0</a>",
            "<a>&#xD800;</a>",
            "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>",
            "<!DOCTYPE a><a/>",
            "<?p x?><a/>",
            "&amp;<a/>",
        ];
        for text in wrong {
            assert_eq!(Element::decode(text.as_bytes()), Err(XmlError), "{text}");
        }
        assert_eq!(Element::decode(b"<a>\xff</a>"), Err(XmlError));
    }

    #[test]
    fn limits() {
        let nested = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        assert!(Element::decode(nested(DEPTH_MAX).as_bytes()).is_ok());
        assert!(Element::decode(nested(DEPTH_MAX + 1).as_bytes()).is_err());
        let wide = |count: usize| format!("<a>{}</a>", "<b/>".repeat(count - 1));
        assert!(Element::decode(wide(ELEMENTS_MAX).as_bytes()).is_ok());
        assert!(Element::decode(wide(ELEMENTS_MAX + 1).as_bytes()).is_err());
        let long = |len: usize| format!("<a>{}</a>", "x".repeat(len - 7));
        assert!(Element::decode(long(DOCUMENT_BYTES_MAX).as_bytes()).is_ok());
        assert!(Element::decode(long(DOCUMENT_BYTES_MAX + 1).as_bytes()).is_err());
    }

    #[test]
    fn what_is_written_is_read() {
        arbtest::arbtest(|u| {
            let text: String = u.arbitrary()?;
            let mut xml = XmlWriter::new("Root");
            xml.element("Inner", |xml| xml.text("Key", &text));
            xml.number("Number", 7);
            xml.flag("Flag", true);
            let document = xml.finish();
            let read = Element::decode(document.as_bytes());
            // XML cannot hold U+0000.
            if text.contains('\0') {
                assert!(read.is_err());
            } else {
                let root = read.expect("a document");
                assert_eq!(root.child("Inner").and_then(|inner| inner.text_of("Key")), Some(text.as_str()));
                assert_eq!((root.text_of("Number"), root.text_of("Flag")), (Some("7"), Some("true")));
            }
            Ok(())
        });
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let pieces = [
            "<a>",
            "</a>",
            "<b/>",
            "<!--",
            "-->",
            "<![CDATA[",
            "]]>",
            "&lt;",
            "&#",
            ";",
            "x",
            "<!DOCTYPE",
            "\"",
            ">",
            "<",
        ];
        arbtest::arbtest(|u| {
            let mut bytes = Vec::new();
            while !u.is_empty() {
                match u.arbitrary()? {
                    Some(byte) => bytes.push(byte),
                    None => bytes.extend_from_slice(u.choose(&pieces)?.as_bytes()),
                }
            }
            let _ = Element::decode(&bytes);
            Ok(())
        });
    }
}

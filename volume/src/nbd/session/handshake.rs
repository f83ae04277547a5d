//! The handshake: options and their answers.

use super::super::export::{Export, ExportName, Features};
use super::super::header::Framing;
use super::super::option::{ContextQuery, InfoQuery, OptionHeader, decode_text};
use super::super::protocol::{
    EXPORT_NAME_ZEROES, OPTION_REPLY_MAGIC, STRING_BYTES_MAX, allocation, handshake, info, option, option_reply,
};
use super::super::request::{Purpose, Request};
use super::{Asked, End, Negotiated, Session, State, TlsPolicy};

/// What people are told about an export that there is not.
const NO_EXPORT: &str = "there is no volume of this name, or, without a name, not one alone";
/// What they are told where exports are not listed.
pub(super) const NO_LIST: &str = "the volumes are not known now: try again";

impl Session {
    /// The owner's answer to [`Request::List`]: all exports, or none if they are not to be listed.
    ///
    /// # Panics
    /// When the session has not asked, or a text is too long.
    pub fn handle_exports(&mut self, exports: Option<&[ExportName]>) {
        let State::Asking(Asked::List) = self.state else { panic!("a list of exports was asked for") };
        self.state = State::OptionHeader;
        let Some(exports) = exports else {
            return self.answer(option::LIST, option_reply::ERR_POLICY, &[NO_LIST.as_bytes()]);
        };
        if exports.len() > self.limits.exports_listed_max {
            return self.answer(option::LIST, option_reply::ERR_TOO_BIG, &[]);
        }
        for ExportName { name, description } in exports {
            let is_short = name.len() <= STRING_BYTES_MAX && description.len() <= STRING_BYTES_MAX;
            assert!(is_short, "names and descriptions have up to 4,096 bytes");
            let len = u32::try_from(name.len()).expect("at most 4,096").to_be_bytes();
            self.answer(option::LIST, option_reply::SERVER, &[&len, name.as_bytes(), description.as_bytes()]);
        }
        self.answer(option::LIST, option_reply::ACK, &[]);
    }

    /// The owner's answer to [`Request::Lookup`] where there is such an export and this client cannot have it now: why, and
    /// what to do, for people. Up to 4,096 bytes are sent.
    ///
    /// # Panics
    /// When the session has not asked.
    pub fn handle_refusal(&mut self, why: &str) {
        let why = &why.as_bytes()[..why.len().min(STRING_BYTES_MAX)];
        match std::mem::replace(&mut self.state, State::OptionHeader) {
            State::Asking(Asked::ExportName(_)) => self.end_with(End::Refused),
            State::Asking(Asked::Info { option, .. } | Asked::Contexts { option, .. }) => {
                self.answer(option, option_reply::ERR_POLICY, &[why]);
            }
            _ => panic!("an export was asked for"),
        }
    }

    /// The owner's answer to [`Request::Lookup`]: the export, or none if there is none of that name.
    ///
    /// # Panics
    /// When the session has not asked, or the export is none that the protocol allows.
    pub fn handle_export(&mut self, export: Option<Export>) {
        if let Some(export) = &export {
            export.assert_valid(&self.limits);
        }
        match std::mem::replace(&mut self.state, State::OptionHeader) {
            State::Asking(Asked::ExportName(name)) => match export {
                Some(export) => self.finish_export_name(&name, export),
                None => self.end_with(End::Refused),
            },
            State::Asking(Asked::Info { option, query }) => match export {
                Some(export) => self.finish_info(option, &query, export),
                None => self.answer(option, option_reply::ERR_UNKNOWN, &[NO_EXPORT.as_bytes()]),
            },
            State::Asking(Asked::Contexts { option, query }) => match export {
                Some(export) => self.finish_contexts(option, query, &export),
                None => self.answer(option, option_reply::ERR_UNKNOWN, &[NO_EXPORT.as_bytes()]),
            },
            _ => panic!("an export was asked for"),
        }
    }

    /// TLS is on the connection: the answer to [`Request::StartTls`], or before any byte on a connection that began with
    /// it. What was negotiated before is forgotten, because anybody could have said it.
    ///
    /// # Panics
    /// When bytes of the client were read in between: those were not protected.
    pub fn handle_tls(&mut self) {
        let is_fresh = matches!(self.state, State::ClientFlags) && self.gathered.is_empty();
        assert!(is_fresh || matches!(self.state, State::Tls), "TLS begins where the session has stopped reading");
        if !is_fresh {
            let no_zeroes = self.negotiated.no_zeroes;
            self.negotiated = Negotiated { no_zeroes, ..Negotiated::default() };
            self.state = State::OptionHeader;
        }
        self.is_secure = true;
    }

    pub(super) fn handle_client_flags(&mut self, message: &[u8]) {
        let flags = u32::from_be_bytes(message.try_into().expect("four bytes are gathered"));
        let known = u32::from(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
        if flags & !known != 0 {
            return self.end_with(End::UnknownFlags);
        }
        self.negotiated.no_zeroes = flags & u32::from(handshake::NO_ZEROES) != 0;
        self.state = State::OptionHeader;
    }

    pub(super) fn handle_option_header(&mut self, message: &[u8]) {
        let Some(header) = OptionHeader::decode(message) else { return self.end_with(End::BadMagic) };
        self.options += 1;
        if self.options > self.limits.options_max {
            return self.end_with(End::TooManyOptions);
        }
        let len = u64::from(header.len);
        if len > self.limits.skip_bytes_max {
            return self.end_with(End::TooLong);
        }
        if len > self.limits.option_bytes_max as u64 {
            self.state = State::SkipOption(header, len);
        } else if len > 0 {
            self.state = State::OptionData(header);
        } else {
            self.handle_option(header, &[]);
        }
    }

    /// An option that was too long to be read has been passed over.
    pub(super) fn refuse_long_option(&mut self, header: OptionHeader) {
        match header.option {
            option::EXPORT_NAME => self.end_with(End::TooLong),
            option::ABORT => self.handle_option(header, &[]),
            option => {
                self.state = State::OptionHeader;
                self.answer(option, option_reply::ERR_TOO_BIG, &[]);
            }
        }
    }

    pub(super) fn handle_option(&mut self, header: OptionHeader, data: &[u8]) {
        self.state = State::OptionHeader;
        let option = header.option;
        let needs_tls = self.tls == TlsPolicy::Required && !self.is_secure;
        match option {
            option::ABORT => {
                self.answer(option, option_reply::ACK, &[]);
                self.end_with(End::Aborted);
            }
            option::EXPORT_NAME if needs_tls || self.is_shutting_down => self.end_with(End::Refused),
            option::EXPORT_NAME => self.handle_export_name(data),
            _ if self.is_shutting_down => self.answer(option, option_reply::ERR_SHUTDOWN, &[]),
            option::STARTTLS => self.handle_start_tls(data),
            _ if needs_tls => self.answer(option, option_reply::ERR_TLS_REQD, &[]),
            option::LIST => match data {
                [] => self.ask(Asked::List, Request::List),
                _ => self.answer(option, option_reply::ERR_INVALID, &[]),
            },
            option::INFO | option::GO => match InfoQuery::decode(data) {
                Some(query) => {
                    let name = query.name.clone();
                    let purpose = if option == option::GO { Purpose::Enter } else { Purpose::Describe };
                    self.ask(Asked::Info { option, query }, Request::Lookup { name, purpose });
                }
                None => self.answer(option, option_reply::ERR_INVALID, &[]),
            },
            option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => self.handle_framing(option, data),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.handle_contexts(option, data),
            _ => self.answer(option, option_reply::ERR_UNSUP, &[]),
        }
    }

    fn ask(&mut self, asked: Asked, request: Request) {
        self.state = State::Asking(asked);
        self.requests.push_back(request);
    }

    /// One answer to an option, its data in parts.
    fn answer(&mut self, option: u32, reply: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let len = u32::try_from(len).expect("answers are short");
        self.output.push(&OPTION_REPLY_MAGIC.to_be_bytes());
        for number in [option, reply, len] {
            self.output.push(&number.to_be_bytes());
        }
        parts.iter().for_each(|part| self.output.push(part));
    }

    fn handle_start_tls(&mut self, data: &[u8]) {
        let reply = match self.tls {
            TlsPolicy::Unsupported => option_reply::ERR_UNSUP,
            _ if self.is_secure || !data.is_empty() => option_reply::ERR_INVALID,
            TlsPolicy::Offered | TlsPolicy::Required => option_reply::ACK,
        };
        self.answer(option::STARTTLS, reply, &[]);
        if reply == option_reply::ACK {
            self.state = State::Tls;
            self.requests.push_back(Request::StartTls);
        }
    }

    /// `STRUCTURED_REPLY` and `EXTENDED_HEADERS`. The second implies the first and cannot be taken back.
    fn handle_framing(&mut self, option: u32, data: &[u8]) {
        let reply = match (option, self.negotiated.framing) {
            _ if !data.is_empty() => option_reply::ERR_INVALID,
            (option::STRUCTURED_REPLY, Framing::Extended) => option_reply::ERR_EXT_HEADER_REQD,
            (option::STRUCTURED_REPLY, _) => {
                self.negotiated.framing = Framing::Structured;
                option_reply::ACK
            }
            _ => {
                self.negotiated.framing = Framing::Extended;
                option_reply::ACK
            }
        };
        self.answer(option, reply, &[]);
    }

    fn handle_contexts(&mut self, option: u32, data: &[u8]) {
        if option == option::SET_META_CONTEXT {
            // Replaced even where the new choice fails.
            self.negotiated.allocation_of = None;
        }
        let query = ContextQuery::decode(data).filter(|_| self.negotiated.framing != Framing::Simple);
        let Some(query) = query else { return self.answer(option, option_reply::ERR_INVALID, &[]) };
        let lookup = Request::Lookup { name: query.export.clone(), purpose: Purpose::Describe };
        self.ask(Asked::Contexts { option, query }, lookup);
    }

    fn finish_contexts(&mut self, option: u32, query: ContextQuery, export: &Export) {
        let is_choice = option == option::SET_META_CONTEXT;
        let is_listed = !is_choice && (query.is_empty || query.names_base);
        if export.tells_allocation && (query.names_allocation || is_listed) {
            let id = if is_choice { allocation::ID } else { 0 };
            self.answer(option, option_reply::META_CONTEXT, &[&id.to_be_bytes(), allocation::NAME.as_bytes()]);
            if is_choice {
                self.negotiated.allocation_of = Some(query.export);
            }
        }
        self.answer(option, option_reply::ACK, &[]);
    }

    fn handle_export_name(&mut self, data: &[u8]) {
        // A client with extended headers must not use it: the answer could not say so.
        let name = decode_text(data).filter(|_| self.negotiated.framing != Framing::Extended);
        let Some(name) = name else { return self.end_with(End::Refused) };
        let lookup = Request::Lookup { name: name.to_owned(), purpose: Purpose::Enter };
        self.ask(Asked::ExportName(name.to_owned()), lookup);
    }

    fn finish_export_name(&mut self, name: &str, export: Export) {
        self.output.push(&export.size.to_be_bytes());
        self.output.push(&self.transmission_flags(&export).to_be_bytes());
        if !self.negotiated.no_zeroes {
            self.output.push(&[0; EXPORT_NAME_ZEROES]);
        }
        self.enter(name, export);
    }

    fn finish_info(&mut self, option: u32, query: &InfoQuery, export: Export) {
        let flags = self.transmission_flags(&export).to_be_bytes();
        self.tell(option, info::EXPORT, &[&export.size.to_be_bytes(), &flags]);
        if query.wants_name {
            let name = export.name.as_ref().unwrap_or(&query.name);
            self.tell(option, info::NAME, &[name.as_bytes()]);
        }
        if query.wants_description && !export.description.is_empty() {
            self.tell(option, info::DESCRIPTION, &[export.description.as_bytes()]);
        }
        if query.wants_block_size {
            let sizes = [export.blocks.min, export.blocks.preferred, self.limits.payload_bytes_max];
            let [min, preferred, max] = sizes.map(u32::to_be_bytes);
            self.tell(option, info::BLOCK_SIZE, &[&min, &preferred, &max]);
        }
        self.answer(option, option_reply::ACK, &[]);
        if option == option::GO {
            self.enter(&query.name, export);
        }
    }

    /// One piece of information, its data in up to three parts.
    fn tell(&mut self, option: u32, kind: u16, parts: &[&[u8]]) {
        let kind = kind.to_be_bytes();
        let all: Vec<&[u8]> = std::iter::once(&kind[..]).chain(parts.iter().copied()).collect();
        self.answer(option, option_reply::INFO, &all);
    }

    fn transmission_flags(&self, export: &Export) -> u16 {
        let flags = export.features.with(Features::HAS_FLAGS);
        let has_chunks = self.negotiated.framing != Framing::Simple;
        if has_chunks { flags.with(Features::DF).bits() } else { flags.bits() }
    }

    /// Begins the transmission phase.
    fn enter(&mut self, name: &str, export: Export) {
        self.has_allocation = self.negotiated.allocation_of.as_deref() == Some(name);
        self.export = Some(export);
        self.state = State::RequestHeader;
    }
}

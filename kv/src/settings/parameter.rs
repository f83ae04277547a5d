//! Settings by the names that Valkey gives them: `CONFIG GET`, `CONFIG SET`, and configuration files.
//!
//! A [`Parameter`] knows what its text may be and what it is when nobody sets it. Most are kept as texts; one that means
//! something here is bound to a [`Place`] of the settings.

use super::Settings;
use super::form::{self, Form};
use super::table::PARAMETERS;

/// One setting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    /// An older name.
    pub(crate) alias: &'static str,
    form: Form,
    default: Default,
    /// Cannot be changed while the engine runs.
    pub(crate) is_fixed: bool,
    /// Is not shown to those who look at commands.
    pub(crate) is_secret: bool,
    /// Can only be changed where `enable-protected-configs` allows it.
    pub(crate) is_protected: bool,
    /// Is not shown by a pattern, only by its name.
    pub(crate) is_hidden: bool,
    /// Stands in a file as several words.
    pub(crate) is_many: bool,
    place: Option<Place>,
}

/// What a parameter is when nobody sets it.
#[derive(Debug, Clone, Copy)]
enum Default {
    Text(&'static str),
    Number(i64),
}

/// Where in the settings a parameter's value lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(super) show: fn(&Settings) -> Vec<u8>,
    pub(super) set: fn(&mut Settings, &[u8]) -> Result<(), String>,
}

/// A parameter with a form of any kind.
pub(super) const fn parameter(name: &'static str, form: Form, default: &'static str) -> Parameter {
    Parameter {
        name,
        alias: "",
        form,
        default: Default::Text(default),
        is_fixed: false,
        is_secret: false,
        is_protected: false,
        is_hidden: false,
        is_many: false,
        place: None,
    }
}

/// `yes` or `no`.
pub(super) const fn flag(name: &'static str, default: bool) -> Parameter {
    parameter(name, Form::Flag, if default { "yes" } else { "no" })
}

/// One of some words.
pub(super) const fn of(name: &'static str, words: &'static [&'static str], default: &'static str) -> Parameter {
    parameter(name, Form::Words(words), default)
}

/// Any text.
pub(super) const fn text(name: &'static str, default: &'static str) -> Parameter {
    parameter(name, Form::Text, default)
}

/// A text with rules of its own.
pub(super) const fn checked(
    name: &'static str,
    check: fn(&str) -> Result<String, String>,
    default: &'static str,
) -> Parameter {
    parameter(name, Form::Checked(check), default)
}

/// A whole number.
pub(super) const fn int(name: &'static str, min: i64, max: u64, default: i64) -> Parameter {
    Parameter { default: Default::Number(default), ..parameter(name, Form::Integer(min, max), "") }
}

/// A number of bytes.
pub(super) const fn bytes(name: &'static str, min: u64, max: u64, default: i64) -> Parameter {
    Parameter { default: Default::Number(default), ..parameter(name, Form::Bytes(min, max), "") }
}

impl Parameter {
    pub(super) const fn alias(self, alias: &'static str) -> Self {
        Self { alias, ..self }
    }

    pub(super) const fn fixed(self) -> Self {
        Self { is_fixed: true, ..self }
    }

    pub(super) const fn secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    pub(super) const fn protected(self) -> Self {
        Self { is_protected: true, ..self }
    }

    pub(super) const fn hidden(self) -> Self {
        Self { is_hidden: true, ..self }
    }

    pub(super) const fn many(self) -> Self {
        Self { is_many: true, ..self }
    }

    pub(super) const fn at(self, place: Place) -> Self {
        Self { place: Some(place), ..self }
    }

    /// Whether it changes anything here.
    #[cfg(test)]
    pub(crate) const fn is_bound(&self) -> bool {
        self.place.is_some()
    }

    /// Whether it is a number of bytes.
    pub(crate) const fn is_bytes(&self) -> bool {
        matches!(self.form, Form::Bytes(..) | Form::Share)
    }

    /// What it is when nobody sets it.
    pub(crate) fn default(&self) -> Vec<u8> {
        match self.default {
            Default::Text(text) => text.into(),
            Default::Number(number) => number.to_string().into_bytes(),
        }
    }

    /// As `CONFIG GET` shows it.
    pub(crate) fn show(&self, settings: &Settings) -> Vec<u8> {
        match &self.place {
            Some(place) => (place.show)(settings),
            None => settings.kept.get(self.name).map_or_else(|| self.default(), |text| text.to_vec()),
        }
    }

    /// Changes it, or tells why not.
    pub(crate) fn set(&self, settings: &mut Settings, text: &[u8]) -> Result<(), String> {
        let text = self.form.read(text)?;
        match &self.place {
            Some(place) => (place.set)(settings, &text),
            None => {
                settings.kept.insert(self.name, text.into());
                Ok(())
            }
        }
    }
}

/// The place of a field.
macro_rules! at {
    ($($field:ident).+) => {
        $crate::settings::parameter::Place {
            show: |settings| $crate::settings::value::Value::show(&settings.$($field).+),
            set: |settings, text| {
                settings.$($field).+ = $crate::settings::value::Value::read(text)?;
                Ok(())
            },
        }
    };
}
pub(super) use at;

/// Only the classes that the text names change.
pub(super) const OUTPUT_LIMITS: Place = Place {
    show: |settings| settings.clients.output.show().into_bytes(),
    set: |settings, text| {
        let bytes = |text: &[u8]| form::bytes(&String::from_utf8_lossy(text));
        settings.clients.output.read(text, bytes)
    },
};

/// Setting the same password again replaces all passwords of the default user too.
pub(super) const PASSWORD: Place = Place {
    show: |settings| settings.password.clone(),
    set: |settings, text| {
        settings.password = text.to_vec();
        settings.password_changes += 1;
        Ok(())
    },
};

pub(super) const ACL_CHANNELS: Place = Place {
    show: |settings| if settings.acl_all_channels { "allchannels" } else { "resetchannels" }.into(),
    set: |settings, text| {
        settings.acl_all_channels = text == b"allchannels";
        Ok(())
    },
};

/// The parameter of a name or alias, in any case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Parameter> {
    let is_it = |known: &str| !known.is_empty() && known.as_bytes().eq_ignore_ascii_case(name);
    PARAMETERS.iter().find(|parameter| is_it(parameter.name) || is_it(parameter.alias))
}

/// Whether what a parameter is set to is not to be shown.
pub(crate) fn is_secret(name: &[u8]) -> bool {
    find(name).is_some_and(|parameter| parameter.is_secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_shown() {
        let mut settings = Settings::default();
        assert!(PARAMETERS.is_sorted_by_key(|parameter| parameter.name));
        for parameter in PARAMETERS {
            let shown = parameter.show(&settings);
            let readable = String::from_utf8_lossy(&shown).into_owned();
            parameter.set(&mut settings, &shown).unwrap_or_else(|why| panic!("{} {readable}: {why}", parameter.name));
            assert_eq!(parameter.show(&settings), shown, "{}", parameter.name);
            assert_eq!(String::from_utf8_lossy(&parameter.default()), readable, "{}", parameter.name);
            assert!(std::ptr::eq(find(parameter.name.to_uppercase().as_bytes()).unwrap(), parameter));
        }
    }
}

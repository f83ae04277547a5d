//! Where replies may differ, and why. Everything else has to be equal, byte for byte.

use crate::talk::Reply;

/// How the replies of a command are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Exactly,
    /// The order in which a hash table gives its elements is nobody's promise.
    InAnyOrder,
    /// The same of pairs that follow each other.
    PairsInAnyOrder,
    /// Time passes between the two servers' answers: up to so much.
    WithinTime(u64),
}

pub(super) fn how(name: &str) -> How {
    match name {
        "SMEMBERS" | "SINTER" | "SUNION" | "SDIFF" | "KEYS" | "HKEYS" | "HVALS" => How::InAnyOrder,
        "HGETALL" => How::PairsInAnyOrder,
        "TTL" => How::WithinTime(5),
        "PTTL" => How::WithinTime(5_000),
        "EXPIRETIME" => How::WithinTime(5),
        "PEXPIRETIME" => How::WithinTime(5_000),
        _ => How::Exactly,
    }
}

/// A difference between Redis 7.0 and the contract, which is Valkey 9.1.
#[derive(Debug)]
pub(super) struct Exception {
    /// The command, or `*` for all.
    command: &'static str,
    /// In Redis' reply, or empty.
    theirs: &'static str,
    /// In ours, or empty.
    ours: &'static str,
    pub(super) why: &'static str,
}

/// Each was looked up in Valkey's source: what it does there is what we do. Those that are our own fault say so.
pub(super) const EXCEPTIONS: &[Exception] = &[
    Exception {
        command: "XSETID",
        theirs: "+OK",
        ours: "-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        why: "Valkey compares the ID with the greatest that was deleted, which Redis 7.0 does not",
    },
    Exception {
        command: "COMMAND",
        theirs: "*",
        ours: "-ERR Invalid arguments specified for command",
        why: "OURS: keys of a call whose count of keys is no number are not guessed; the call itself is refused by both",
    },
    Exception {
        command: "BITCOUNT",
        theirs: "",
        ours: "-ERR",
        why: "Valkey reads BITCOUNT's arguments before it looks for the key, Redis 7.0 after",
    },
    Exception {
        command: "BITCOUNT",
        theirs: "-ERR syntax error",
        ours: ":",
        why: "BITCOUNT takes a start without an end since Valkey 8.1",
    },
    Exception {
        command: "BITPOS",
        theirs: "",
        ours: "-ERR",
        why: "Valkey reads BITPOS's arguments before it looks for the key, Redis 7.0 after",
    },
    Exception {
        command: "EVAL",
        theirs: "Lua redis lib command arguments must be strings or integers",
        ours: "Command arguments must be strings or integers",
        why: "Valkey has another text for arguments of a wrong type in scripts",
    },
    Exception {
        command: "EVAL_RO",
        theirs: "Lua redis lib command arguments must be strings or integers",
        ours: "Command arguments must be strings or integers",
        why: "Valkey has another text for arguments of a wrong type in scripts",
    },
    Exception {
        command: "LPOS",
        theirs: "",
        ours: "must between -9223372036854775807",
        why: "Valkey refuses the least rank, because it has no opposite",
    },
    Exception {
        command: "LREM",
        theirs: "",
        ours: "must between -9223372036854775807",
        why: "Valkey refuses the least count, because it has no opposite",
    },
    Exception {
        command: "XREAD",
        theirs: "-ERR Unbalanced XREAD list",
        ours: "-ERR Unbalanced \\'xread\\' list",
        why: "Valkey names the command in the text",
    },
    Exception {
        command: "XREADGROUP",
        theirs: "-ERR Unbalanced XREAD list",
        ours: "-ERR Unbalanced \\'xreadgroup\\' list",
        why: "Valkey names the command in the text",
    },
    Exception {
        command: "XINFO",
        theirs: "consumers",
        ours: "consumers",
        why: "XCLAIM and XAUTOCLAIM make the consumer also where nothing is claimed since Redis 7.2",
    },
    Exception {
        command: "XGROUP",
        theirs: ":1",
        ours: ":0",
        why: "XCLAIM and XAUTOCLAIM make the consumer also where nothing is claimed since Redis 7.2",
    },
    Exception {
        command: "OBJECT",
        theirs: "\\r\\n",
        ours: "\\r\\n",
        why: "OURS: whether a string is shown as raw, embstr or int follows from its bytes, not from the commands that made it",
    },
    Exception {
        command: "ZRANK",
        theirs: "-ERR wrong number of arguments",
        ours: "-ERR syntax error",
        why: "ZRANK has WITHSCORE since Redis 7.2",
    },
    Exception {
        command: "ZREVRANK",
        theirs: "-ERR wrong number of arguments",
        ours: "-ERR syntax error",
        why: "ZREVRANK has WITHSCORE since Redis 7.2",
    },
    Exception {
        command: "GETEX",
        theirs: "",
        ours: "-ERR value is not an integer",
        why: "OURS: GETEX looks at its number before it looks for the key",
    },
    Exception {
        command: "*",
        theirs: "-ERR unknown command",
        ours: "\\x00",
        why: "OURS: a word that an error repeats is not cut at a zero byte",
    },
    Exception {
        command: "*",
        theirs: "-ERR unknown command",
        ours: "\\xef\\xbf\\xbd",
        why: "OURS: bytes that are no UTF-8 are replaced in a word that an error repeats",
    },
    Exception {
        command: "*",
        theirs: "-ERR Unsupported option",
        ours: "\\x00",
        why: "OURS: a word that an error repeats is not cut at a zero byte",
    },
];

/// The exception that explains these two replies.
pub(super) fn explained(name: &str, theirs: &Reply, ours: &Reply) -> Option<usize> {
    let (theirs, ours) = (theirs.shown(), ours.shown());
    EXCEPTIONS.iter().position(|known| {
        (known.command == name || known.command == "*") && theirs.contains(known.theirs) && ours.contains(known.ours)
    })
}

/// Whether the replies are equal, as far as they have to be.
pub(super) fn are_equal(how: How, theirs: &Reply, ours: &Reply) -> bool {
    if theirs == ours {
        return true;
    }
    if is_same_number(theirs, ours) {
        return true;
    }
    match (how, theirs, ours) {
        (How::Exactly, Reply::Many(head, values), Reply::Many(other_head, others)) => {
            let pairs = values.iter().zip(others);
            head == other_head
                && values.len() == others.len()
                && pairs.into_iter().all(|(one, other)| are_equal(how, one, other))
        }
        (How::InAnyOrder, Reply::Many(head, values), Reply::Many(other_head, others)) => {
            head == other_head && sorted(values.clone()) == sorted(others.clone())
        }
        (How::PairsInAnyOrder, Reply::Many(head, values), Reply::Many(other_head, others)) => {
            let pairs = |values: &[Reply]| sorted(values.chunks(2).map(<[Reply]>::to_vec).collect());
            head == other_head && pairs(values) == pairs(others)
        }
        (How::WithinTime(most), Reply::One(one), Reply::One(other)) => {
            let number = |bytes: &[u8]| std::str::from_utf8(bytes.get(1..)?).ok()?.trim_end().parse::<u64>().ok();
            number(one).zip(number(other)).is_some_and(|(one, other)| one.abs_diff(other) <= most)
        }
        _ => false,
    }
}

/// Redis 7.0 writes floats with 17 digits, Valkey with as few as say the same number.
fn is_same_number(theirs: &Reply, ours: &Reply) -> bool {
    let (Reply::One(theirs), Reply::One(ours)) = (theirs, ours) else { return false };
    let number = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).ok()?.trim_end();
        let text = text.strip_prefix(',').or_else(|| text.strip_prefix('$')?.split("\r\n").nth(1))?;
        text.parse::<f64>().ok().filter(|number| number.is_finite())
    };
    let is_longer = theirs.len() > ours.len();
    is_longer && number(theirs).zip(number(ours)).is_some_and(|(one, other)| one.to_bits() == other.to_bits())
}

fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort();
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Reply {
        Reply::One(text.into())
    }

    #[test]
    fn order_and_time_are_forgiven_where_they_may_be() {
        let many = |texts: &[&str]| Reply::Many(b"*\r\n".to_vec(), texts.iter().map(|text| one(text)).collect());
        let (forth, back) = (many(&["a", "1", "b", "2"]), many(&["b", "2", "a", "1"]));
        assert!(are_equal(How::PairsInAnyOrder, &forth, &back) && are_equal(How::InAnyOrder, &forth, &back));
        assert!(!are_equal(How::Exactly, &forth, &back));
        assert!(!are_equal(How::PairsInAnyOrder, &forth, &many(&["b", "1", "a", "2"])));
        assert!(are_equal(How::WithinTime(5), &one(":10\r\n"), &one(":7\r\n")));
        assert!(!are_equal(How::WithinTime(5), &one(":10\r\n"), &one(":-1\r\n")));
    }
}

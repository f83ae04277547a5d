//! Commands for lists.

use super::argument::{KEY, double, integer, key, one_of, string, token};
use super::flags::{access, flags};
use super::key::{at, counted};
use super::{Argument, Categories, Flags, Group, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::List, name, arity, flags).listed(Categories::LIST)
}

const WHERE_FROM: Argument = one_of("wherefrom", &[token("LEFT"), token("RIGHT")]);
const WHERE_TO: Argument = one_of("whereto", &[token("LEFT"), token("RIGHT")]);
const WHERE: Argument = one_of("where", &[token("LEFT"), token("RIGHT")]);

pub(super) static COMMANDS: &[Spec] = &[
    command("blmove", 6, flags![WRITE | DENYOOM | BLOCKING])
        .keys(&[at(1, access![RW | ACCESS | DELETE]), at(2, access![RW | INSERT])])
        .docs("6.2.0", "Moves an element from one list to another, and waits for one if need be.", "O(1)")
        .arguments(&[key("source", 0), key("destination", 1), WHERE_FROM, WHERE_TO, double("timeout")]),
    command("blmpop", -5, flags![WRITE | BLOCKING])
        .keys(&[counted(2, access![RW | ACCESS | DELETE])])
        .docs(
            "7.0.0",
            "Takes elements from the first list that has any, and waits if none has.",
            "O(N+M) for N keys and M elements taken",
        )
        .arguments(&[
            double("timeout"),
            integer("numkeys"),
            KEY.multiple(),
            WHERE,
            integer("count").after("COUNT").optional(),
        ]),
    command("blpop", -3, flags![WRITE | BLOCKING])
        .keys(&[at(1, access![RW | ACCESS | DELETE]).through(-2)])
        .docs(
            "2.0.0",
            "Takes the first element of the first list that has any, and waits if none has.",
            "O(N) for N keys",
        )
        .history(&[("6.0.0", "`timeout` may be a fraction of a second.")])
        .arguments(&[KEY.multiple(), double("timeout")]),
    command("brpop", -3, flags![WRITE | BLOCKING])
        .keys(&[at(1, access![RW | ACCESS | DELETE]).through(-2)])
        .docs(
            "2.0.0",
            "Takes the last element of the first list that has any, and waits if none has.",
            "O(N) for N keys",
        )
        .history(&[("6.0.0", "`timeout` may be a fraction of a second.")])
        .arguments(&[KEY.multiple(), double("timeout")]),
    command("brpoplpush", 4, flags![WRITE | DENYOOM | BLOCKING])
        .keys(&[at(1, access![RW | ACCESS | DELETE]), at(2, access![RW | INSERT])])
        .docs(
            "2.2.0",
            "Moves the last element of a list to the front of another, and waits for one if need be.",
            "O(1)",
        )
        .history(&[("6.0.0", "`timeout` may be a fraction of a second.")])
        .arguments(&[key("source", 0), key("destination", 1), double("timeout")]),
    command("lindex", 3, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs(
            "1.0.0",
            "Reads one element by its index.",
            "O(N) for N elements between the nearer end and the index; O(1) at both ends",
        )
        .arguments(&[KEY, integer("index")]),
    command("linsert", 5, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![RW | INSERT])])
        .docs("2.2.0", "Inserts an element before or after another.", "O(N) for N elements in front of the pivot")
        .arguments(&[KEY, one_of("where", &[token("BEFORE"), token("AFTER")]), string("pivot"), string("element")]),
    command("llen", 2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO])])
        .docs("1.0.0", "Counts the elements of a list.", "O(1)")
        .arguments(&[KEY]),
    command("lmove", 5, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![RW | ACCESS | DELETE]), at(2, access![RW | INSERT])])
        .docs("6.2.0", "Moves an element from an end of one list to an end of another.", "O(1)")
        .arguments(&[key("source", 0), key("destination", 1), WHERE_FROM, WHERE_TO]),
    command("lmpop", -4, flags![WRITE])
        .keys(&[counted(1, access![RW | ACCESS | DELETE])])
        .docs("7.0.0", "Takes elements from the first list that has any.", "O(N+M) for N keys and M elements taken")
        .arguments(&[integer("numkeys"), KEY.multiple(), WHERE, integer("count").after("COUNT").optional()]),
    command("lpop", -2, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | ACCESS | DELETE])])
        .docs("1.0.0", "Takes elements from the front of a list.", "O(N) for N elements returned")
        .history(&[("6.2.0", "`count`.")])
        .arguments(&[KEY, integer("count").since("6.2.0").optional()]),
    command("lpos", -3, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs(
            "6.0.6",
            "Tells at which indexes an element stands.",
            "O(N) for N elements looked at; O(1) near the end where the search begins",
        )
        .arguments(&[
            KEY,
            string("element"),
            integer("rank").after("RANK").optional(),
            integer("num-matches").after("COUNT").optional(),
            integer("len").after("MAXLEN").optional(),
        ]),
    command("lpush", -3, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | INSERT])])
        .docs("1.0.0", "Adds elements at the front of a list.", "O(N) for N elements added")
        .history(&[("2.4.0", "Several elements in one call.")])
        .arguments(&[KEY, string("element").multiple()]),
    command("lpushx", -3, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | INSERT])])
        .docs("2.2.0", "Adds elements at the front of a list that exists.", "O(N) for N elements added")
        .history(&[("4.0.0", "Several elements in one call.")])
        .arguments(&[KEY, string("element").multiple()]),
    command("lrange", 4, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("1.0.0", "Reads a range of elements.", "O(S+N) for S elements in front of the range and N in it")
        .arguments(&[KEY, integer("start"), integer("stop")]),
    command("lrem", 4, flags![WRITE])
        .keys(&[at(1, access![RW | DELETE])])
        .docs("1.0.0", "Removes elements that are equal to a value.", "O(N+M) for N elements in the list and M removed")
        .arguments(&[KEY, integer("count"), string("element")]),
    command("lset", 4, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs("1.0.0", "Replaces one element by its index.", "O(N) for N elements in the list; O(1) at both ends")
        .arguments(&[KEY, integer("index"), string("element")]),
    command("ltrim", 4, flags![WRITE])
        .keys(&[at(1, access![RW | DELETE])])
        .docs("1.0.0", "Keeps a range of elements and removes the rest.", "O(N) for N elements removed")
        .arguments(&[KEY, integer("start"), integer("stop")]),
    command("rpop", -2, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | ACCESS | DELETE])])
        .docs("1.0.0", "Takes elements from the end of a list.", "O(N) for N elements returned")
        .history(&[("6.2.0", "`count`.")])
        .arguments(&[KEY, integer("count").since("6.2.0").optional()]),
    command("rpoplpush", 3, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![RW | ACCESS | DELETE]), at(2, access![RW | INSERT])])
        .docs("1.2.0", "Moves the last element of a list to the front of another.", "O(1)")
        .arguments(&[key("source", 0), key("destination", 1)]),
    command("rpush", -3, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | INSERT])])
        .docs("1.0.0", "Adds elements at the end of a list.", "O(N) for N elements added")
        .history(&[("2.4.0", "Several elements in one call.")])
        .arguments(&[KEY, string("element").multiple()]),
    command("rpushx", -3, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | INSERT])])
        .docs("2.2.0", "Adds elements at the end of a list that exists.", "O(N) for N elements added")
        .history(&[("4.0.0", "Several elements in one call.")])
        .arguments(&[KEY, string("element").multiple()]),
];

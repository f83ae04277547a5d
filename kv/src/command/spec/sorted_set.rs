//! Commands for sorted sets.

use super::argument::{KEY, block, double, integer, key, one_of, pattern, string, token};
use super::flags::{access, flags};
use super::key::{at, counted};
use super::{Argument, Categories, Flags, Group, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::SortedSet, name, arity, flags).listed(Categories::SORTED_SET)
}

const LIMIT: Argument = block("limit", &[integer("offset"), integer("count")]).after("LIMIT").optional();
const LIMITED: Argument = block("limit", &[integer("offset"), integer("count")]).after("LIMIT");
const AGGREGATE: Argument =
    one_of("aggregate", &[token("SUM"), token("MIN"), token("MAX")]).after("AGGREGATE").optional();
const WHERE: Argument = one_of("where", &[token("MIN"), token("MAX")]);

pub(super) static COMMANDS: &[Spec] = &[
    command("bzmpop", -5, flags![WRITE | BLOCKING])
        .keys(&[counted(2, access![RW | ACCESS | DELETE])])
        .docs(
            "7.0.0",
            "Takes members from the first sorted set that has any, and waits if none has.",
            "O(K) + O(M*log(N)) for K keys and M members taken out of N",
        )
        .arguments(&[
            double("timeout"),
            integer("numkeys"),
            KEY.multiple(),
            WHERE,
            integer("count").after("COUNT").optional(),
        ]),
    command("bzpopmax", -3, flags![WRITE | BLOCKING | FAST])
        .keys(&[at(1, access![RW | ACCESS | DELETE]).through(-2)])
        .docs(
            "5.0.0",
            "Takes the member with the highest score from the first sorted set that has any, and waits if none has.",
            "O(log(N)) for N members",
        )
        .history(&[("6.0.0", "`timeout` may be a fraction of a second.")])
        .arguments(&[KEY.multiple(), double("timeout")]),
    command("bzpopmin", -3, flags![WRITE | BLOCKING | FAST])
        .keys(&[at(1, access![RW | ACCESS | DELETE]).through(-2)])
        .docs(
            "5.0.0",
            "Takes the member with the lowest score from the first sorted set that has any, and waits if none has.",
            "O(log(N)) for N members",
        )
        .history(&[("6.0.0", "`timeout` may be a fraction of a second.")])
        .arguments(&[KEY.multiple(), double("timeout")]),
    command("zadd", -4, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs(
            "1.2.0",
            "Adds members with scores, or changes their scores.",
            "O(log(N)) per member, for N members in the set",
        )
        .history(&[
            ("2.4.0", "Several members in one call."),
            ("3.0.2", "`XX`, `NX`, `CH` and `INCR`."),
            ("6.2.0", "`GT` and `LT`."),
        ])
        .arguments(&[
            KEY,
            one_of("condition", &[token("NX"), token("XX")]).since("3.0.2").optional(),
            one_of("comparison", &[token("GT"), token("LT")]).since("6.2.0").optional(),
            token("CH").named("change").since("3.0.2").optional(),
            token("INCR").named("increment").since("3.0.2").optional(),
            block("data", &[double("score"), string("member")]).multiple(),
        ]),
    command("zcard", 2, flags![READONLY | FAST])
        .keys(&[at(1, access![RO])])
        .docs("1.2.0", "Counts the members of a sorted set.", "O(1)")
        .arguments(&[KEY]),
    command("zcount", 4, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.0.0", "Counts the members in a range of scores.", "O(log(N)) for N members")
        .arguments(&[KEY, double("min"), double("max")]),
    command("zdiff", -3, flags![READONLY])
        .keys(&[counted(1, access![RO | ACCESS])])
        .docs(
            "6.2.0",
            "Lists the members of the first sorted set that are in no other.",
            "O(L + (N-K)log(N)) for L members of all sets, N of the first and K in the result",
        )
        .arguments(&[integer("numkeys"), KEY.multiple(), token("WITHSCORES").optional()]),
    command("zdiffstore", -4, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![OW | UPDATE]), counted(2, access![RO | ACCESS])])
        .docs(
            "6.2.0",
            "Stores the members of the first sorted set that are in no other.",
            "O(L + (N-K)log(N)) for L members of all sets, N of the first and K in the result",
        )
        .arguments(&[key("destination", 0), integer("numkeys"), key("key", 1).multiple()]),
    command("zincrby", 4, flags![WRITE | DENYOOM | FAST])
        .keys(&[at(1, access![RW | ACCESS | UPDATE])])
        .docs("1.2.0", "Adds to the score of a member.", "O(log(N)) for N members")
        .arguments(&[KEY, integer("increment"), string("member")]),
    command("zinter", -3, flags![READONLY])
        .keys(&[counted(1, access![RO | ACCESS])])
        .docs(
            "6.2.0",
            "Lists the members that all sorted sets have.",
            "O(N*K)+O(M*log(M)) for K sets, the smallest with N members, and M in the result",
        )
        .arguments(&[
            integer("numkeys"),
            KEY.multiple(),
            integer("weight").after("WEIGHTS").optional().multiple(),
            AGGREGATE,
            token("WITHSCORES").optional(),
        ]),
    command("zintercard", -3, flags![READONLY])
        .keys(&[counted(1, access![RO | ACCESS])])
        .docs(
            "7.0.0",
            "Counts the members that all sorted sets have.",
            "O(N*K) for K sets, the smallest with N members",
        )
        .arguments(&[integer("numkeys"), KEY.multiple(), integer("limit").after("LIMIT").optional()]),
    command("zinterstore", -4, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![OW | UPDATE]), counted(2, access![RO | ACCESS])])
        .docs(
            "2.0.0",
            "Stores the members that all sorted sets have.",
            "O(N*K)+O(M*log(M)) for K sets, the smallest with N members, and M in the result",
        )
        .arguments(&[
            key("destination", 0),
            integer("numkeys"),
            key("key", 1).multiple(),
            integer("weight").after("WEIGHTS").optional().multiple(),
            AGGREGATE,
        ]),
    command("zlexcount", 4, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.8.9", "Counts the members in a range of names.", "O(log(N)) for N members")
        .arguments(&[KEY, string("min"), string("max")]),
    command("zmpop", -4, flags![WRITE])
        .keys(&[counted(1, access![RW | ACCESS | DELETE])])
        .docs(
            "7.0.0",
            "Takes members from the first sorted set that has any.",
            "O(K) + O(M*log(N)) for K keys and M members taken out of N",
        )
        .arguments(&[integer("numkeys"), KEY.multiple(), WHERE, integer("count").after("COUNT").optional()]),
    command("zmscore", -3, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("6.2.0", "Reads the scores of several members.", "O(N) for N members asked for")
        .arguments(&[KEY, string("member").multiple()]),
    command("zpopmax", -2, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | ACCESS | DELETE])])
        .docs("5.0.0", "Takes the members with the highest scores.", "O(log(N)*M) for N members and M taken")
        .arguments(&[KEY, integer("count").optional()]),
    command("zpopmin", -2, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | ACCESS | DELETE])])
        .docs("5.0.0", "Takes the members with the lowest scores.", "O(log(N)*M) for N members and M taken")
        .arguments(&[KEY, integer("count").optional()]),
    command("zrandmember", -2, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("6.2.0", "Reads members at random.", "O(N) for N members returned")
        .tips(&["nondeterministic_output"])
        .arguments(&[KEY, block("options", &[integer("count"), token("WITHSCORES").optional()]).optional()]),
    command("zrange", -4, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs(
            "1.2.0",
            "Lists members in a range of ranks, scores or names.",
            "O(log(N)+M) for N members and M returned",
        )
        .history(&[("6.2.0", "`REV`, `BYSCORE`, `BYLEX` and `LIMIT`.")])
        .arguments(&[
            KEY,
            string("start"),
            string("stop"),
            one_of("sortby", &[token("BYSCORE"), token("BYLEX")]).since("6.2.0").optional(),
            token("REV").since("6.2.0").optional(),
            LIMITED.since("6.2.0").optional(),
            token("WITHSCORES").optional(),
        ]),
    command("zrangebylex", -4, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.8.9", "Lists members in a range of names.", "O(log(N)+M) for N members and M returned")
        .arguments(&[KEY, string("min"), string("max"), LIMIT]),
    command("zrangebyscore", -4, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("1.0.5", "Lists members in a range of scores.", "O(log(N)+M) for N members and M returned")
        .history(&[("2.0.0", "`WITHSCORES`.")])
        .arguments(&[KEY, double("min"), double("max"), token("WITHSCORES").since("2.0.0").optional(), LIMIT]),
    command("zrangestore", -5, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![OW | UPDATE]), at(2, access![RO | ACCESS])])
        .docs("6.2.0", "Stores members in a range of ranks, scores or names.", "O(log(N)+M) for N members and M stored")
        .arguments(&[
            key("dst", 0),
            key("src", 1),
            string("min"),
            string("max"),
            one_of("sortby", &[token("BYSCORE"), token("BYLEX")]).optional(),
            token("REV").optional(),
            LIMIT,
        ]),
    command("zrank", -3, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.0.0", "Tells the rank of a member, counted from the lowest score.", "O(log(N)) for N members")
        .history(&[("7.2.0", "`WITHSCORE`.")])
        .arguments(&[KEY, string("member"), token("WITHSCORE").optional()]),
    command("zrem", -3, flags![WRITE | FAST])
        .keys(&[at(1, access![RW | DELETE])])
        .docs(
            "1.2.0",
            "Removes members, and the sorted set with its last one.",
            "O(M*log(N)) for N members and M removed",
        )
        .history(&[("2.4.0", "Several members in one call.")])
        .arguments(&[KEY, string("member").multiple()]),
    command("zremrangebylex", 4, flags![WRITE])
        .keys(&[at(1, access![RW | DELETE])])
        .docs("2.8.9", "Removes the members in a range of names.", "O(log(N)+M) for N members and M removed")
        .arguments(&[KEY, string("min"), string("max")]),
    command("zremrangebyrank", 4, flags![WRITE])
        .keys(&[at(1, access![RW | DELETE])])
        .docs("2.0.0", "Removes the members in a range of ranks.", "O(log(N)+M) for N members and M removed")
        .arguments(&[KEY, integer("start"), integer("stop")]),
    command("zremrangebyscore", 4, flags![WRITE])
        .keys(&[at(1, access![RW | DELETE])])
        .docs("1.2.0", "Removes the members in a range of scores.", "O(log(N)+M) for N members and M removed")
        .arguments(&[KEY, double("min"), double("max")]),
    command("zrevrange", -4, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs(
            "1.2.0",
            "Lists members in a range of ranks, highest score first.",
            "O(log(N)+M) for N members and M returned",
        )
        .arguments(&[KEY, integer("start"), integer("stop"), token("WITHSCORES").optional()]),
    command("zrevrangebylex", -4, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs(
            "2.8.9",
            "Lists members in a range of names, last name first.",
            "O(log(N)+M) for N members and M returned",
        )
        .arguments(&[KEY, string("max"), string("min"), LIMIT]),
    command("zrevrangebyscore", -4, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs(
            "2.2.0",
            "Lists members in a range of scores, highest score first.",
            "O(log(N)+M) for N members and M returned",
        )
        .history(&[("2.1.6", "Ranges without their ends.")])
        .arguments(&[KEY, double("max"), double("min"), token("WITHSCORES").optional(), LIMIT]),
    command("zrevrank", -3, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("2.0.0", "Tells the rank of a member, counted from the highest score.", "O(log(N)) for N members")
        .history(&[("7.2.0", "`WITHSCORE`.")])
        .arguments(&[KEY, string("member"), token("WITHSCORE").optional()]),
    command("zscan", -3, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs(
            "2.8.0",
            "Goes through the members of a sorted set.",
            "O(1) per call, O(N) for a whole iteration over N elements",
        )
        .history(&[("8.0.0", "`NOSCORES`.")])
        .tips(&["nondeterministic_output"])
        .arguments(&[
            KEY,
            integer("cursor"),
            pattern("pattern").after("MATCH").optional(),
            integer("count").after("COUNT").optional(),
            token("NOSCORES").optional(),
        ]),
    command("zscore", 3, flags![READONLY | FAST])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("1.2.0", "Reads the score of a member.", "O(1)")
        .arguments(&[KEY, string("member")]),
    command("zunion", -3, flags![READONLY])
        .keys(&[counted(1, access![RO | ACCESS])])
        .docs(
            "6.2.0",
            "Lists the members that any of the sorted sets has.",
            "O(N)+O(M*log(M)) for N members of all sets and M in the result",
        )
        .arguments(&[
            integer("numkeys"),
            KEY.multiple(),
            integer("weight").after("WEIGHTS").optional().multiple(),
            AGGREGATE,
            token("WITHSCORES").optional(),
        ]),
    command("zunionstore", -4, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![OW | UPDATE]), counted(2, access![RO | ACCESS])])
        .docs(
            "2.0.0",
            "Stores the members that any of the sorted sets has.",
            "O(N)+O(M*log(M)) for N members of all sets and M in the result",
        )
        .arguments(&[
            key("destination", 0),
            integer("numkeys"),
            key("key", 1).multiple(),
            integer("weight").after("WEIGHTS").optional().multiple(),
            AGGREGATE,
        ]),
];

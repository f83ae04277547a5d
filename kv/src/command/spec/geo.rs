//! Commands for places on Earth, kept in sorted sets.

use super::argument::{KEY, block, double, integer, key, one_of, string, token};
use super::flags::{access, flags};
use super::key::{at, behind};
use super::{Argument, Categories, Flags, Group, Search, Spec};

const fn command(name: &'static str, arity: i8, flags: Flags) -> Spec {
    Spec::new(Group::Geo, name, arity, flags).listed(Categories::GEO)
}

const UNIT: Argument = one_of("unit", &[token("M"), token("KM"), token("FT"), token("MI")]);
const ORDER: Argument = one_of("order", &[token("ASC"), token("DESC")]).optional();
const COUNT: Argument = block("count-block", &[integer("count").after("COUNT"), token("ANY").optional()]).optional();
const COUNT_OR_ANY: Argument =
    block("count-block", &[integer("count").after("COUNT"), token("ANY").since("6.2.0").optional()]).optional();
const STORE: Argument = one_of(
    "store",
    &[key("storekey", 1).after("STORE").display("key"), key("storedistkey", 2).after("STOREDIST").display("key")],
)
.optional();
const FROM: Argument = one_of(
    "from",
    &[
        string("member").after("FROMMEMBER"),
        block("fromlonlat", &[double("longitude"), double("latitude")]).after("FROMLONLAT"),
    ],
)
.optional();
const SHAPE: Argument = one_of(
    "by",
    &[
        block("circle", &[double("radius").after("BYRADIUS"), UNIT]),
        block("box", &[double("width").after("BYBOX"), double("height"), UNIT]),
        block(
            "polygon",
            &[
                integer("num-vertices").after("BYPOLYGON"),
                block("vertices", &[double("longitude"), double("latitude")]).multiple(),
            ],
        )
        .since("9.0.0"),
    ],
);

pub(super) static COMMANDS: &[Spec] = &[
    command("geoadd", -5, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![RW | UPDATE])])
        .docs(
            "3.2.0",
            "Adds members with their coordinates, or moves them.",
            "O(log(N)) per member, for N members in the set",
        )
        .history(&[("6.2.0", "`CH`, `NX` and `XX`.")])
        .arguments(&[
            KEY,
            one_of("condition", &[token("NX"), token("XX")]).since("6.2.0").optional(),
            token("CH").named("change").since("6.2.0").optional(),
            block("data", &[double("longitude"), double("latitude"), string("member")]).multiple(),
        ]),
    command("geodist", -4, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("3.2.0", "Measures the distance between two members.", "O(1)")
        .arguments(&[KEY, string("member1"), string("member2"), UNIT.optional()]),
    command("geohash", -2, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("3.2.0", "Writes the places of members as geohashes.", "O(1) per member")
        .arguments(&[KEY, string("member").optional().multiple()]),
    command("geopos", -2, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs("3.2.0", "Tells the coordinates of members.", "O(1) per member")
        .arguments(&[KEY, string("member").optional().multiple()]),
    command("georadius", -6, flags![WRITE | DENYOOM])
        .keys(&[
            at(1, access![RO | ACCESS]),
            behind("STORE", 6, access![OW | UPDATE | VARIABLE_FLAGS]),
            behind("STOREDIST", 6, access![OW | UPDATE | VARIABLE_FLAGS]),
        ])
        .search(Search::LastStore { from: 6 })
        .docs(
            "3.2.0",
            "Finds members within a circle around a point, and may store them.",
            "O(N+log(M)) for N members in the circle's bounding box out of M",
        )
        .history(&[("6.2.0", "`ANY` after a count."), ("7.0.0", "Units in capital letters.")])
        .arguments(&[
            KEY,
            double("longitude"),
            double("latitude"),
            double("radius"),
            UNIT,
            token("WITHCOORD").optional(),
            token("WITHDIST").optional(),
            token("WITHHASH").optional(),
            COUNT_OR_ANY,
            ORDER,
            STORE,
        ]),
    command("georadius_ro", -6, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs(
            "3.2.10",
            "Finds members within a circle around a point.",
            "O(N+log(M)) for N members in the circle's bounding box out of M",
        )
        .history(&[("6.2.0", "`ANY` after a count."), ("7.0.0", "Units in capital letters.")])
        .arguments(&[
            KEY,
            double("longitude"),
            double("latitude"),
            double("radius"),
            UNIT,
            token("WITHCOORD").optional(),
            token("WITHDIST").optional(),
            token("WITHHASH").optional(),
            COUNT_OR_ANY,
            ORDER,
        ]),
    command("georadiusbymember", -5, flags![WRITE | DENYOOM])
        .keys(&[
            at(1, access![RO | ACCESS]),
            behind("STORE", 5, access![OW | UPDATE | VARIABLE_FLAGS]),
            behind("STOREDIST", 5, access![OW | UPDATE | VARIABLE_FLAGS]),
        ])
        .search(Search::LastStore { from: 5 })
        .docs(
            "3.2.0",
            "Finds members within a circle around a member, and may store them.",
            "O(N+log(M)) for N members in the circle's bounding box out of M",
        )
        .history(&[("6.2.0", "`ANY` after a count."), ("7.0.0", "Units in capital letters.")])
        .arguments(&[
            KEY,
            string("member"),
            double("radius"),
            UNIT,
            token("WITHCOORD").optional(),
            token("WITHDIST").optional(),
            token("WITHHASH").optional(),
            COUNT,
            ORDER,
            STORE,
        ]),
    command("georadiusbymember_ro", -5, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs(
            "3.2.10",
            "Finds members within a circle around a member.",
            "O(N+log(M)) for N members in the circle's bounding box out of M",
        )
        .history(&[("6.2.0", "`ANY` after a count."), ("7.0.0", "Units in capital letters.")])
        .arguments(&[
            KEY,
            string("member"),
            double("radius"),
            UNIT,
            token("WITHCOORD").optional(),
            token("WITHDIST").optional(),
            token("WITHHASH").optional(),
            COUNT,
            ORDER,
        ]),
    command("geosearch", -7, flags![READONLY])
        .keys(&[at(1, access![RO | ACCESS])])
        .docs(
            "6.2.0",
            "Finds members inside a circle, a box or a polygon.",
            "O(N+log(M)) for N members in the grid cells that the shape touches and M inside it",
        )
        .history(&[("7.0.0", "Units in capital letters."), ("9.0.0", "`BYPOLYGON`.")])
        .arguments(&[
            KEY,
            FROM,
            SHAPE,
            ORDER,
            COUNT,
            token("WITHCOORD").optional(),
            token("WITHDIST").optional(),
            token("WITHHASH").optional(),
        ]),
    command("geosearchstore", -8, flags![WRITE | DENYOOM])
        .keys(&[at(1, access![OW | UPDATE]), at(2, access![RO | ACCESS])])
        .docs(
            "6.2.0",
            "Stores the members inside a circle, a box or a polygon.",
            "O(N+log(M)) for N members in the grid cells that the shape touches and M inside it",
        )
        .history(&[("7.0.0", "Units in capital letters."), ("9.0.0", "`BYPOLYGON`.")])
        .arguments(&[
            key("destination", 0),
            key("source", 1),
            FROM,
            SHAPE,
            ORDER,
            COUNT,
            token("STOREDIST").optional(),
        ]),
];

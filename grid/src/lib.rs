//! One connection per pair of servers, many calls on it.

pub mod seam;

use super::*;

#[test]
fn parity_grows_with_the_drives() {
    assert_eq!([1, 2, 3, 4, 5, 6, 7, 8, 16].map(parity), [0, 1, 1, 2, 2, 3, 3, 4, 4]);
}

//! Multiplication by a constant as an 8 x 8 matrix of bits, the form that GFNI multiplies by.

use crate::field::double;

/// The matrix of every element.
static MATRICES: [u64; 256] = matrices();

/// The matrix of `element` as `gf2p8affineqb` reads it: byte `7 - i` holds the input bits that make up output bit `i`.
pub(super) fn matrix_of(element: u8) -> u64 {
    MATRICES[usize::from(element)]
}

const fn matrices() -> [u64; 256] {
    let mut table = [0; 256];
    let mut element = 0_u8;
    loop {
        table[element as usize] = compute(element);
        if element == u8::MAX {
            return table;
        }
        element += 1;
    }
}

/// Column `input` of the matrix is the product of the element and x^input.
const fn compute(element: u8) -> u64 {
    let mut matrix = 0;
    let mut column = element;
    let mut input = 0;
    while input < 8 {
        let mut output = 0;
        while output < 8 {
            let bit = (column >> output & 1) as u64;
            matrix |= bit << ((7 - output) * 8 + input);
            output += 1;
        }
        column = double(column);
        input += 1;
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::matrix_of;
    use crate::field::multiply;

    #[test]
    fn matrix_times_byte_is_the_product() {
        for element in 0..=255 {
            let rows = matrix_of(element).to_be_bytes();
            for byte in 0..=255 {
                let product =
                    (0..8).fold(0, |sum, bit| sum | u8::from((rows[bit] & byte).count_ones() % 2 == 1) << bit);
                assert_eq!(product, multiply(element, byte), "{element} * {byte}");
            }
        }
    }
}

//! Draws the shapes of a picture into a PNG.
//!
//! A few lines and letters in a few colours need no library: pixels are indexes of a palette, and stored without
//! compression (RFC 1951 §3.2.4), 180 KB in all.

use super::plot::{Picture, Shape};

/// Letters of 3 × 5 pixels, one digit for each row from the top; its bits are pixels.
const GLYPHS: &str = "0 75557 1 26227 2 71747 3 71317 4 55711 5 74717 6 74757 7 71222 8 75757 9 75717 a 25755 b 65656 \
    c 34443 d 65556 e 74647 f 74644 g 34553 h 55755 i 72227 j 11152 k 55655 l 44447 m 57755 n 65555 o 25552 p 65644 \
    q 25531 r 65655 s 34216 t 72222 u 55557 v 55552 w 55775 x 55255 y 55222 z 71247 . 00002 / 11244 % 51245 , 00024 \
    = 07070 + 02720 - 00700 : 02020 ; 02024";
/// Each pixel of a letter is drawn this large.
const LETTER: usize = 2;
/// Bytes of a block that is stored as it is.
const LONGEST_BLOCK: usize = 65_535;

struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    fn set(&mut self, x: f64, y: f64, colour: u8) {
        let (x, y) = (x.round() as usize, y.round() as usize);
        if x < self.width && y < self.height {
            self.pixels[y * self.width + x] = colour;
        }
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: u8, dashed: bool) {
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).ceil().max(1.0) as usize;
        for step in (0..=steps).filter(|step| !dashed || step % 7 < 4) {
            let share = step as f64 / steps as f64;
            self.set(from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share, colour);
        }
    }

    /// Writes a text. `anchor` is the share of its width that is left of `x`; `y` is its base line.
    fn text(&mut self, (x, y): (f64, f64), anchor: f64, text: &str, colour: u8) {
        let width = (4 * LETTER) as f64;
        let left = x - anchor * width * text.chars().count() as f64;
        for (number, letter) in text.chars().enumerate() {
            let Some(rows) = glyph(letter) else { continue };
            for (pixel, (row, column)) in (0..5).flat_map(|row| (0..3).map(move |column| (row, column))).enumerate() {
                if rows[pixel / 3] >> (2 - column) & 1 == 1 {
                    let (x, y) = (left + width * number as f64, y - (5 * LETTER) as f64);
                    self.square(x + (LETTER * column) as f64, y + (LETTER * row) as f64, LETTER, colour);
                }
            }
        }
    }

    fn square(&mut self, x: f64, y: f64, size: usize, colour: u8) {
        for (across, down) in (0..size).flat_map(|across| (0..size).map(move |down| (across, down))) {
            self.set(x + across as f64, y + down as f64, colour);
        }
    }
}

fn glyph(letter: char) -> Option<[u8; 5]> {
    let mut words = GLYPHS.split_whitespace();
    let letter = letter.to_lowercase().to_string();
    words.by_ref().find(|word| *word == letter)?;
    let rows = words.next()?.bytes().map(|digit| digit - b'0').collect::<Vec<u8>>();
    rows.try_into().ok()
}

pub(super) fn png(picture: &Picture) -> Vec<u8> {
    let (width, height) = (picture.size.0 as usize, picture.size.1 as usize);
    let mut canvas = Canvas { width, height, pixels: vec![0; width * height] };
    let mut palette = vec!["#ffffff"];
    for shape in &picture.shapes {
        let colour = shape.colour();
        let known = palette.iter().position(|known| *known == colour);
        let index = known.unwrap_or(palette.len());
        if known.is_none() {
            palette.push(colour);
        }
        draw(&mut canvas, shape, index as u8);
    }
    encode(&canvas, &palette)
}

fn draw(canvas: &mut Canvas, shape: &Shape, colour: u8) {
    match shape {
        Shape::Line { points, dashed, .. } => {
            points.windows(2).for_each(|pair| canvas.line(pair[0], pair[1], colour, *dashed));
        }
        Shape::Dot { at, .. } => canvas.square(at.0 - 1.0, at.1 - 1.0, 3, colour),
        Shape::Text { at, anchor, text, .. } => canvas.text(*at, *anchor, text, colour),
    }
}

fn encode(canvas: &Canvas, palette: &[&str]) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend((canvas.width as u32).to_be_bytes());
    header.extend((canvas.height as u32).to_be_bytes());
    header.extend([8, 3, 0, 0, 0]); // eight bits, a palette, no interlacing
    let colours: Vec<u8> = palette.iter().flat_map(|colour| rgb(colour)).collect();
    // Every row begins with its filter: none.
    let rows: Vec<u8> = canvas.pixels.chunks(canvas.width).flat_map(|row| [&[0], row].concat()).collect();
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [(b"IHDR", header), (b"PLTE", colours), (b"IDAT", zlib(&rows)), (b"IEND", Vec::new())] {
        png.extend((data.len() as u32).to_be_bytes());
        let checked = [kind.as_slice(), &data].concat();
        png.extend(&checked);
        png.extend(crc32(&checked).to_be_bytes());
    }
    png
}

/// Reads a colour such as `#2471a3`.
fn rgb(colour: &str) -> [u8; 3] {
    let value = u32::from_str_radix(colour.trim_start_matches('#'), 16).unwrap_or(0);
    [(value >> 16) as u8, (value >> 8) as u8, value as u8]
}

/// The data as a zlib stream (RFC 1950) of stored blocks.
fn zlib(data: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let blocks = data.len().div_ceil(LONGEST_BLOCK);
    for (number, block) in data.chunks(LONGEST_BLOCK).enumerate() {
        let length = block.len() as u16;
        stream.push(u8::from(number + 1 == blocks));
        stream.extend(length.to_le_bytes());
        stream.extend((!length).to_le_bytes());
        stream.extend(block);
    }
    let (low, high) = data.iter().fold((1_u32, 0_u32), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    stream.extend((high << 16 | low).to_be_bytes());
    stream
}

/// The checksum of PNG (its specification, annex D).
fn crc32(data: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { 0xedb8_8320 ^ (crc >> 1) } else { crc >> 1 };
    !data.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values of the specifications: that of "123456789", and RFC 1950's of an empty stream.
    #[test]
    fn checksums_are_those_of_the_specifications() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(zlib(b"abc")[10..], [0x02, 0x4d, 0x01, 0x27]);
    }

    #[test]
    fn a_line_and_a_letter_are_drawn() {
        let mut canvas = Canvas { width: 20, height: 12, pixels: vec![0; 240] };
        canvas.line((0.0, 0.0), (19.0, 0.0), 1, false);
        canvas.text((2.0, 12.0), 0.0, "1", 2);
        assert_eq!(canvas.pixels.iter().filter(|pixel| **pixel == 1).count(), 20);
        assert_eq!(canvas.pixels.iter().filter(|pixel| **pixel == 2).count(), 4 * (1 + 2 + 1 + 1 + 3));
    }
}

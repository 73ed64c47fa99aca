//! The few SVG elements that a drawing is made of.

use std::io::{self, Write};

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};

/// Writes SVG.
pub struct Canvas<W> {
    xml: Writer<W>,
}

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    /// Left edge.
    pub x: i32,
    /// Upper edge.
    pub y: i32,
    /// Pixels across.
    pub width: i32,
    /// Pixels down.
    pub height: i32,
}

impl<W: Write> Canvas<W> {
    /// Begins a document of that size, with the style sheet and a white background for viewers that are dark.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn begin(out: W, width: i32, height: i32, title: &str, style: &str) -> io::Result<Canvas<W>> {
        // One element a line: the file can be compared line by line.
        let mut canvas = Canvas { xml: Writer::new_with_indent(out, b' ', 0) };
        let (width, height) = (width.to_string(), height.to_string());
        let svg = BytesStart::new("svg").with_attributes([
            ("xmlns", "http://www.w3.org/2000/svg"),
            ("width", width.as_str()),
            ("height", height.as_str()),
            ("viewBox", format!("0 0 {width} {height}").as_str()),
            ("role", "img"),
            ("font-family", "DejaVu Sans, Verdana, Arial, sans-serif"),
        ]);
        canvas.xml.write_event(Event::Start(svg))?;
        canvas.title(title)?;
        canvas.xml.create_element("style").write_text_content(BytesText::new(style))?;
        canvas
            .xml
            .create_element("rect")
            .with_attributes([("class", "page"), ("width", width.as_str()), ("height", height.as_str())])
            .write_empty()?;
        Ok(canvas)
    }

    /// Ends the document.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn end(mut self) -> io::Result<()> {
        self.xml.write_event(Event::End(BytesEnd::new("svg")))?;
        writeln!(self.xml.get_mut())
    }

    /// Begins a group.
    pub fn open(&mut self, class: &str) -> io::Result<()> {
        self.xml.write_event(Event::Start(BytesStart::new("g").with_attributes([("class", class)])))
    }

    /// Ends the group begun last.
    pub fn close(&mut self) -> io::Result<()> {
        self.xml.write_event(Event::End(BytesEnd::new("g")))
    }

    /// What a viewer shows when the pointer rests on the group.
    pub fn title(&mut self, text: &str) -> io::Result<()> {
        self.xml.create_element("title").write_text_content(BytesText::new(&valid(text)))?;
        Ok(())
    }

    /// A rectangle.
    pub fn rect(&mut self, class: &str, rect: Rect) -> io::Result<()> {
        self.rectangle(class, None, rect)
    }

    /// A rectangle of its own colour.
    pub fn filled(&mut self, class: &str, fill: &str, rect: Rect) -> io::Result<()> {
        self.rectangle(class, Some(fill), rect)
    }

    fn rectangle(&mut self, class: &str, fill: Option<&str>, rect: Rect) -> io::Result<()> {
        let [x, y, width, height] = [rect.x, rect.y, rect.width, rect.height].map(|number| number.to_string());
        let place = [("x", x.as_str()), ("y", y.as_str()), ("width", width.as_str()), ("height", height.as_str())];
        let attributes = [("class", class)].into_iter().chain(fill.map(|fill| ("fill", fill))).chain(place);
        self.xml.create_element("rect").with_attributes(attributes).write_empty()?;
        Ok(())
    }

    /// A line of text of that font size with its baseline at `y`. It begins at `x`, or has its middle there where the
    /// class says so.
    pub fn text(&mut self, class: &str, size: i32, (x, y): (i32, i32), text: &str) -> io::Result<()> {
        let [size, x, y] = [size, x, y].map(|number| number.to_string());
        let element = self.xml.create_element("text").with_attributes([
            ("class", class),
            ("font-size", size.as_str()),
            ("x", x.as_str()),
            ("y", y.as_str()),
        ]);
        element.write_text_content(BytesText::new(&valid(text)))?;
        Ok(())
    }
}

/// The text with what XML does not allow replaced: control characters, and the two code points that are none.
fn valid(text: &str) -> String {
    let allowed = |char: &char| !char.is_control() && !matches!(char, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|char| if allowed(&char) { char } else { '\u{fffd}' }).collect()
}

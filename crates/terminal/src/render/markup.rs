//! Renders a screen as HTML and as SVG: text stays text, so it can be searched and copied.

use crate::palette::{self, CELL_HEIGHT, CELL_WIDTH, Rgb};
use crate::screen::{Attrs, Style, View};
use std::fmt::Write as _;
use unicode_width::UnicodeWidthStr as _;

const FONT: &str = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";

fn hex(color: Rgb) -> String {
    format!("#{:02x}{:02x}{:02x}", color[0], color[1], color[2])
}

/// Text that is safe in element content and in attribute values of both languages.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in XML.
            '\u{0}'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}')
            }
            char => out.push(char),
        }
    }
    out
}

fn css(style: &Style) -> String {
    let (fg, bg) = palette::seen(style);
    let mut css = String::new();
    if fg != palette::FOREGROUND {
        let _ = write!(css, "color:{};", hex(fg));
    }
    if bg != palette::BACKGROUND {
        let _ = write!(css, "background:{};", hex(bg));
    }
    css.push_str(&font_css(style));
    css
}

fn font_css(style: &Style) -> String {
    let mut css = String::new();
    if style.attrs.has(Attrs::BOLD) {
        css.push_str("font-weight:bold;");
    }
    if style.attrs.has(Attrs::ITALIC) {
        css.push_str("font-style:italic;");
    }
    match (
        style.attrs.has(Attrs::UNDERLINE),
        style.attrs.has(Attrs::STRIKE),
    ) {
        (true, true) => css.push_str("text-decoration:underline line-through;"),
        (true, false) => css.push_str("text-decoration:underline;"),
        (false, true) => css.push_str("text-decoration:line-through;"),
        (false, false) => {}
    }
    css
}

/// One `<pre>` element with inline styles and no external resources.
pub fn html(view: &View) -> String {
    let mut out = format!(
        "<pre class=\"motu-screen\" style=\"margin:0;padding:8px;font-family:{FONT};line-height:1.2;color:{};background:{}\">",
        hex(palette::FOREGROUND),
        hex(palette::BACKGROUND)
    );
    for line in &view.lines {
        for (text, style) in line.pieces() {
            let css = css(&style);
            if css.is_empty() {
                out.push_str(&escaped(text));
            } else {
                let _ = write!(out, "<span style=\"{css}\">{}</span>", escaped(text));
            }
        }
        out.push('\n');
    }
    out.push_str("</pre>\n");
    out
}

/// An SVG whose text is text, positioned by columns.
pub fn svg(view: &View) -> String {
    let (width, height) = (
        usize::from(view.size.cols()) * CELL_WIDTH,
        usize::from(view.size.rows()) * CELL_HEIGHT,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"{}\"/>\n",
        hex(palette::BACKGROUND)
    );
    if view.cursor.visible {
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{}\" width=\"{CELL_WIDTH}\" height=\"{CELL_HEIGHT}\" fill=\"{}\" fill-opacity=\"0.6\"/>",
            usize::from(view.cursor.col) * CELL_WIDTH,
            usize::from(view.cursor.row) * CELL_HEIGHT,
            hex(palette::CURSOR)
        );
    }
    let _ = writeln!(
        out,
        "<g font-family=\"{}\" font-size=\"15\" xml:space=\"preserve\">",
        escaped(FONT)
    );
    for (row, line) in view.lines.iter().enumerate() {
        let mut col = 0;
        for (text, style) in line.pieces() {
            let cells = text.width();
            svg_run(&mut out, text, &style, (row, col, cells));
            col += cells;
        }
    }
    out.push_str("</g>\n</svg>\n");
    out
}

fn svg_run(out: &mut String, text: &str, style: &Style, (row, col, cells): (usize, usize, usize)) {
    let (fg, bg) = palette::seen(style);
    let (x, y, width) = (col * CELL_WIDTH, row * CELL_HEIGHT, cells * CELL_WIDTH);
    if bg != palette::BACKGROUND {
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{CELL_HEIGHT}\" fill=\"{}\"/>",
            hex(bg)
        );
    }
    if text.trim().is_empty() {
        return;
    }
    let css = font_css(style);
    let css = if css.is_empty() {
        css
    } else {
        format!(" style=\"{css}\"")
    };
    let _ = writeln!(
        out,
        "<text x=\"{x}\" y=\"{}\" textLength=\"{width}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{}\"{css}>{}</text>",
        y + 14,
        hex(fg),
        escaped(text)
    );
}

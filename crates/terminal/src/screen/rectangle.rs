//! Rectangular area operations: copy, fill, erase, change attributes.

use super::layer::{Area, Layer, Protection};
use super::sequence::Csi;
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::{Cell, Flags};

/// The changeable attributes, by their SGR numbers.
const LOOKS: [(u16, Flags); 5] = [
    (1, Flags::BOLD),
    (4, Flags::UNDERLINE),
    (5, Flags::empty()),
    (7, Flags::INVERSE),
    (8, Flags::HIDDEN),
];

impl Layer<'_> {
    pub fn rectangle(&mut self, csi: &Csi) {
        match csi.end {
            b'v' => self.copy_area(csi),
            b'x' => self.fill_area(csi),
            b'z' => self.erase_area(csi.rest(0), false),
            // DECSERA does not skip cells protected by SPA.
            b'{' => self.erase_area(csi.rest(0), self.vt.protection != Protection::Iso),
            b'r' => self.change_area(csi, set_look),
            b't' => self.change_area(csi, turn_look),
            _ => {}
        }
    }

    /// Parses top, left, bottom, right, with defaults; relative to the margins in origin mode.
    pub fn area(&self, params: &[u16]) -> Option<Area> {
        let (rows, columns) = (0..self.rows(), 0..self.columns());
        let within = match self.on(TermMode::ORIGIN) {
            true => self.region(),
            false => Area { rows, columns },
        };
        let param = |at: usize| params.get(at).copied().filter(|param| *param > 0);
        let (first, last) = (within.rows.start, within.rows.end);
        let top = first + i32::from(param(0).unwrap_or(1)) - 1;
        let bottom = param(2).map_or(last, |row| first + i32::from(row));
        let (first, end) = (within.columns.start, within.columns.end);
        let left = first + usize::from(param(1).unwrap_or(1)) - 1;
        let right = param(3).map_or(end, |column| first + usize::from(column));
        let area = Area {
            rows: top..bottom.min(last),
            columns: left..right.min(end),
        };
        (!area.rows.is_empty() && !area.columns.is_empty()).then_some(area)
    }

    fn copy_area(&mut self, csi: &Csi) {
        // The fifth and eighth parameters are pages; there is only one.
        let place = |at: usize| csi.param(at).unwrap_or(1);
        let (Some(from), Some(to)) = (
            self.area(&csi.rest(0)[..csi.params.len().min(4)]),
            self.area(&[place(5), place(6)]),
        ) else {
            return;
        };
        let width = from.columns.len().min(to.columns.len());
        let columns = from.columns.start..from.columns.start + width;
        let rows: Vec<Vec<Cell>> = from
            .rows
            .map(|line| self.copy(line, columns.clone()))
            .collect();
        for (line, cells) in to.rows.zip(rows) {
            self.write(line, to.columns.start, &cells);
        }
    }

    fn fill_area(&mut self, csi: &Csi) {
        let with = csi.params.first().copied().unwrap_or(0);
        let printable = matches!(with, 32..=126 | 160..=255);
        let (Some(char), Some(area)) = (
            char::from_u32(with.into()).filter(|_| printable),
            self.area(csi.rest(1)),
        ) else {
            return;
        };
        let mut cell = self.term.grid().cursor.template.clone();
        cell.c = char;
        let cells = vec![cell; area.columns.len()];
        for line in area.rows {
            self.write(line, area.columns.start, &cells);
        }
    }

    fn erase_area(&mut self, params: &[u16], selective: bool) {
        if let Some(area) = self.area(params) {
            for line in area.rows {
                self.erase(line, area.columns.clone(), selective);
            }
        }
    }

    /// DECCARA and DECRARA: in a rectangle, or in the stream between two corners.
    fn change_area(&mut self, csi: &Csi, change: fn(&mut Cell, u16)) {
        let Some(area) = self.area(csi.rest(0)) else {
            return;
        };
        let whole = match self.on(TermMode::ORIGIN) {
            true => self.region().columns,
            false => 0..self.columns(),
        };
        let looks = match csi.rest(4) {
            [] => &[0],
            looks => looks,
        };
        let (first, last) = (area.rows.start, area.rows.end - 1);
        for line in area.rows.clone() {
            let mut columns = area.columns.clone();
            if self.vt.extent != 2 {
                columns.start = if line == first {
                    columns.start
                } else {
                    whole.start
                };
                columns.end = if line == last { columns.end } else { whole.end };
            }
            let mut cells = self.copy(line, columns.clone());
            for cell in &mut cells {
                looks.iter().for_each(|look| change(cell, *look));
            }
            self.write(line, columns.start, &cells);
        }
    }
}

fn set_look(cell: &mut Cell, look: u16) {
    for (number, flag) in LOOKS {
        match look {
            0 => cell.flags.remove(flag),
            look if look == number => cell.flags.insert(flag),
            look if look == number + 20 || (look == 22 && number == 1) => cell.flags.remove(flag),
            _ => {}
        }
    }
}

fn turn_look(cell: &mut Cell, look: u16) {
    for (number, flag) in LOOKS {
        if look == 0 || look == number {
            cell.flags.toggle(flag);
        }
    }
}

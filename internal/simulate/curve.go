package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

const (
	// maxPoints is how many points a curve has at most.
	maxPoints = 4 * curveColumns
	// curveColumns is how many columns a curve is thinned to: about as many as a chart has pixels.
	curveColumns = 500
)

// Point is what a bucket held at one moment. Between two points it changed steadily, so a curve
// is drawn by joining them; where tokens were taken, two points have the same At.
type Point struct {
	At    time.Duration // since the start
	Level enforce.Tokens
}

// curve collects points in order of time. It keeps all of them as long as they are few. Of more, it
// keeps the first, the lowest, the highest and the last of each of curveColumns equal columns, which
// draws the very same picture at that width (Jugel, Jerzak, Hackenbroich and Markl, "M4: A
// Visualization-Oriented Time Series Data Aggregation", VLDB 2014).
type curve struct {
	points []Point
	width  time.Duration // of a column; 0 while all points are kept
	until  time.Duration // no point is later
	open   column
}

func (c *curve) add(p Point) {
	if c.width == 0 && len(c.points) > 0 && p == c.points[len(c.points)-1] {
		return // a take at the moment of another begins where that one ended
	}
	if c.width == 0 && len(c.points) < maxPoints {
		c.points = append(c.points, p)
		return
	}
	if c.width == 0 {
		all := c.points
		// One more than a part of the whole, so that the end is in the last column too.
		c.points, c.width = nil, c.until/curveColumns+1
		for _, earlier := range all {
			c.add(earlier)
		}
	}
	number := p.At / c.width
	if number != c.open.number {
		c.points = c.open.appendTo(c.points)
		c.open = column{number: number}
	}
	c.open.add(p)
}

// all returns the curve.
func (c *curve) all() []Point {
	return c.open.appendTo(c.points)
}

// column is the points of a curve in one of its columns, of which four are kept.
type column struct {
	number                       time.Duration // from 0
	added                        int
	first, lowest, highest, last ordered
}

// ordered is a point with its place among those of its column.
type ordered struct {
	Point
	place int
}

func (c *column) add(p Point) {
	point := ordered{p, c.added}
	if c.added == 0 {
		c.first, c.lowest, c.highest = point, point, point
	}
	if p.Level < c.lowest.Level {
		c.lowest = point
	}
	if p.Level > c.highest.Level {
		c.highest = point
	}
	c.last = point
	c.added++
}

func (c *column) appendTo(points []Point) []Point {
	if c.added == 0 {
		return points
	}
	kept := []ordered{c.first, c.lowest, c.highest, c.last}
	slices.SortFunc(kept, func(a, b ordered) int { return cmp.Compare(a.place, b.place) })
	for _, point := range slices.Compact(kept) {
		points = append(points, point.Point)
	}
	return points
}

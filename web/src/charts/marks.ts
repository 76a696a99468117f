import type uPlot from 'uplot';

type Draw = (plot: uPlot, series: number, first: number, last: number) => boolean;

export function dots(colour: string): Draw {
  return marks((context, x, y, unit) => {
    context.fillStyle = colour;
    context.beginPath();
    context.arc(x, y, 2.5 * unit, 0, 2 * Math.PI);
    context.fill();
  });
}

export function crosses(colour: string): Draw {
  return marks((context, x, y, unit) => {
    const arm = 3 * unit;
    context.strokeStyle = colour;
    context.lineWidth = 1.5 * unit;
    context.beginPath();
    context.moveTo(x - arm, y - arm);
    context.lineTo(x + arm, y + arm);
    context.moveTo(x - arm, y + arm);
    context.lineTo(x + arm, y - arm);
    context.stroke();
  });
}

function marks(mark: (context: CanvasRenderingContext2D, x: number, y: number, unit: number) => void): Draw {
  return (plot, series, first, last) => {
    const [at = [], values = []] = [plot.data[0], plot.data[series]];
    const { ctx } = plot;
    ctx.save();
    for (let index = first; index <= last; index++) {
      const value = values[index];
      if (value === null || value === undefined) continue;
      mark(ctx, plot.valToPos(at[index] as number, 'x', true), plot.valToPos(value, 'y', true), devicePixelRatio);
    }
    ctx.restore();
    return false; // all is drawn
  };
}

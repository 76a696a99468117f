import type { ChartProps } from './chart';
import { atText, valueText } from './reading';

export function Legend({ cursor, ...props }: ChartProps & { cursor: number | null }) {
  const { x, series } = props;
  const index = cursor !== null && cursor < x.length ? cursor : x.length - 1;
  return (
    <ul className="chart-legend">
      <li className="chart-at" data-idle={cursor === null || undefined}>
        {atText(props, index)}
      </li>
      {series.map(({ label, tone, values, points }) => (
        <li key={label}>
          <span className="chart-mark" data-tone={tone} data-points={points} aria-hidden />
          {label} <strong>{valueText(props, values[index])}</strong>
        </li>
      ))}
    </ul>
  );
}

import { hasFaults } from '../faults'
import type { Comparison } from '../measure'

/** The table of one comparison. Errors, wrong rows and wrong flags stand where there are any. */
export function printComparison({ title, unit, rows }: Comparison): void {
  console.log(`\n${title} (${unit} a text)`)
  console.table(
    Object.fromEntries(
      rows.map(({ peer, value, ratio, clientCpu, serverCpu, faults }) => {
        const { errors, wrongRow, wrongFlag, secondId, noFlag } = faults
        return [
          peer,
          {
            time: rounded(value),
            ratio: Number(ratio.toFixed(2)),
            'client CPU': rounded(clientCpu),
            'server CPU': serverCpu === undefined ? '–' : rounded(serverCpu),
            ...(hasFaults(faults)
              ? { errors, 'wrong row': wrongRow, 'wrong flag': wrongFlag, 'second id': secondId }
              : {}),
            ...(noFlag ? { 'no flag': 'yes' } : {}),
          },
        ]
      }),
    ),
  )
  for (const { peer, faults } of rows) if (faults.firstError) console.log(`${peer}: ${faults.firstError}`)
}

const rounded = (value: number): number => Number(value.toPrecision(value < 1_000 ? 3 : 4))

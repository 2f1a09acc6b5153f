import { hasFaults } from '../faults'
import type { Comparison, Row } from '../measure'
import type { Facts, Result } from '../phase'

export function printResult(result: Result): void {
  if (result.kind === 'facts') printFacts(result)
  else printComparison(result)
}

/** Errors, wrong rows and wrong flags stand where there are any. */
function printComparison({ title, unit, rows }: Comparison): void {
  console.log(`\n${title} (${unit} a text)`)
  console.table(
    Object.fromEntries(
      rows.filter(can).map(({ peer, value, ratio, clientCpu, serverCpu, noAnswers, faults }) => {
        const { errors, wrongRow, wrongFlag, secondId, noFlag } = faults
        return [
          peer,
          {
            time: rounded(value),
            ratio: ratio === null ? '–' : Number(ratio.toFixed(2)),
            'client CPU': rounded(clientCpu),
            'server CPU': rounded(serverCpu),
            ...(noFlag ? { tells: 'no flag' } : {}),
            ...(noAnswers ? { tells: 'nothing' } : {}),
            ...(hasFaults(faults)
              ? { errors, 'wrong row': wrongRow, 'wrong flag': wrongFlag, 'second id': secondId }
              : {}),
          },
        ]
      }),
    ),
  )
  for (const row of rows) {
    const { peer, faults } = row
    if (faults.firstError !== undefined) console.log(`${peer}${can(row) ? '' : ' cannot'}: ${faults.firstError}`)
  }
}

const can = ({ value }: Row): boolean => value !== null

function printFacts({ title, columns, rows }: Facts): void {
  console.log(`\n${title}`)
  console.table(
    Object.fromEntries(
      rows.map(({ name, values }) => [
        name,
        Object.fromEntries(columns.map((column, at) => [column, values[at] ?? '–'])),
      ]),
    ),
  )
}

const rounded = (value: number | null): number | string =>
  value === null ? '–' : Number(value.toPrecision(value < 1_000 ? 3 : 4))

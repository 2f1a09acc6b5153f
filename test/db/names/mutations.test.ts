import { expect, test } from 'vitest'
import { serverError } from '../../../src/sql/sqlstate'
import { useDatabase } from '../../support/database'
import { attachHolder } from '../../support/names-table'
import { expectedNames, useNamesStage } from '../../support/names-stage'
import { interleavings, sequences } from './interleavings'
import { nameMutations } from './mutations'
import { gatePart } from '../../support/gate-part'

const stage = useNamesStage(useDatabase())

/** A mutation that is no SQL, or does not fit, is none. */
function refused(error: unknown): string {
  const { code } = serverError(error) ?? {}
  if (code === undefined || code.startsWith('42')) throw error
  return code
}

test.each(sequences)('whole triggers, made in the same way, are not found: $name', async (sequence) => {
  const whole: (typeof nameMutations)[number]['triggers'] = (holder) => [attachHolder(holder)]
  const played = await stage.play(sequence, 'READ COMMITTED', { name: 'whole', triggers: whole })
  expect(played).toEqual(expectedNames(sequence, 'READ COMMITTED'))
})

test.each(gatePart(4, nameMutations))('found: $name', async ({ name, triggers, found, level }) => {
  const interleaving = [...sequences, ...interleavings].find((one) => one.name === found)
  if (!interleaving) throw new TypeError(`There is no interleaving "${found}".`)
  const played = await stage.play(interleaving, level, { name, triggers }).catch(refused)
  expect(played).not.toEqual(expectedNames(interleaving, level))
})

import { expect, test } from 'vitest'
import { serverError } from '../../../src/sql/sqlstate'
import { useDatabase } from '../../support/database'
import { at, expectedAt, type NamesSetting, useNamesStage } from '../../support/names-stage'
import { LEVELS } from '../../support/sessions'
import { interleavings, sequences } from './interleavings'
import { nameMutations } from './mutations'

const db = useDatabase()
const stage = useNamesStage(db)

/** The first that is not as it should be; the rules first, which take no waiting. */
async function firstFound(setting: NamesSetting): Promise<string | undefined> {
  for (const level of LEVELS) {
    for (const interleaving of [...sequences, ...interleavings]) {
      const played = await stage.play(interleaving, level, setting).catch(refused)
      const expected = {
        transcript: expectedAt(interleaving.steps, level),
        names: at(interleaving.names, level),
        violations: [],
      }
      if (JSON.stringify(played) !== JSON.stringify(expected)) return `${interleaving.name}, at ${level}`
    }
  }
  return undefined
}

/** A mutation that is no SQL, or does not fit, is none. */
function refused(error: unknown): string {
  const { code } = serverError(error) ?? {}
  if (code === undefined || code.startsWith('42')) throw error
  return code
}

test('nothing is found where nothing is taken out', async () => {
  expect(await firstFound({ name: 'whole' })).toBeUndefined()
})

test.each(nameMutations)('found: $name', async ({ name, triggers }) => {
  const found = await firstFound({ name, triggers })
  expect(found).toBeDefined()
})

import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { at, expectedAt, useNamesStage } from '../../support/names-stage'
import { LEVELS } from '../../support/sessions'
import { interleavings, sequences } from './interleavings'

const db = useDatabase()
const stage = useNamesStage(db)

describe.each(LEVELS)('at %s', (level) => {
  test.each([...interleavings, ...sequences])('$name', async (interleaving) => {
    const played = await stage.play(interleaving, level)
    expect(played).toEqual({
      transcript: expectedAt(interleaving.steps, level),
      names: at(interleaving.names, level),
      violations: [],
    })
  })
})

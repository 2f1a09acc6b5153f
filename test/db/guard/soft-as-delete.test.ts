import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import type { Interleaving } from '../../support/interleaving'
import { LEVELS } from '../../support/sessions'
import { expectedPlay, softPage, useStage } from '../../support/stage'
import { allInterleavings } from './interleavings'
import { gatePart } from '../../support/gate-part'

const stage = useStage(useDatabase())

const LIVE = '"deletedAt" IS NULL AND'

/** Everybody deletes softly, and looks at live rows only. */
const asSoftDelete = (sql: string): string =>
  sql
    .replaceAll(/\bDELETE FROM page WHERE/gi, `UPDATE page SET "deletedAt" = now() WHERE ${LIVE}`)
    .replaceAll(/\b(FROM page|UPDATE page SET (?!"deletedAt" = now\(\))[^]*?) WHERE/gi, `$1 WHERE ${LIVE}`)
    .replaceAll(/(ON CONFLICT \([^)]*\))/g, `$1 WHERE "deletedAt" IS NULL`)

function softly({ name, given, steps, rows }: Interleaving): Interleaving {
  return {
    name,
    given,
    rows,
    steps: steps.map((step) =>
      step.operation ? { ...step, operation: { ...step.operation, sql: asSoftDelete(step.operation.sql) } } : step,
    ),
  }
}

/** A partial index is no key that a foreign key could refer to, so nobody waits for the check of one, or is refused by it. */
const OF_FOREIGN_KEYS: ReadonlySet<string> = new Set([
  'promotion waits for a child of the row to be promoted',
  'a child of the row that is promoted waits for the promotion',
  'a child of the anchor waits for its deletion and is refused',
])

const setting = { name: 'soft', table: softPage }

for (const level of LEVELS) {
  describe(`a soft delete does to a chain what a delete does, at ${level}`, () => {
    const members = allInterleavings.filter(({ name }) => !OF_FOREIGN_KEYS.has(name))
    for (const interleaving of level === 'READ COMMITTED' ? members : gatePart(4, members)) {
      test(interleaving.name, async () => {
        const played = await stage.play(softly(interleaving), level, setting)
        const live = played.rows.split(' ').filter((row) => !row.endsWith('~'))
        expect({ ...played, rows: live.join(' ') }).toEqual(expectedPlay(interleaving, level))
      })
    }
  })
  describe(`a soft delete waits for no foreign key, at ${level}`, () => {
    for (const interleaving of allInterleavings.filter(({ name }) => OF_FOREIGN_KEYS.has(name))) {
      test(interleaving.name, async () => {
        const { transcript, violations } = await stage.play(softly(interleaving), level, setting)
        expect(violations).toEqual([])
        expect(transcript.filter((line) => /waits|\d{5}/.test(line))).toEqual([])
      })
    }
  })
}

import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { expectedPlay, type Setting, useStage } from '../../support/stage'
import { interleavings } from './interleavings'

const stage = useStage(useDatabase())

const trigger = (name: string, when: string, body: string): string[] => [
  `CREATE FUNCTION "${name}"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${body} END $$`,
  `CREATE TRIGGER "${name}" ${when} ON page FOR EACH ROW EXECUTE FUNCTION "${name}"()`,
]

const stamp = 'NEW.updated_at := clock_timestamp(); RETURN NEW;'
const log = `INSERT INTO log (tag, url) VALUES (TG_OP, (coalesce(NEW, OLD)).url); RETURN NULL;`
const retitle = `UPDATE page SET title = 'by trigger' WHERE id = NEW.id; RETURN NULL;`

/** Names that sort before and after those of the guard, which all begin with `unique_text`. */
const settings: readonly Setting[] = [
  {
    name: 'triggers for updated_at',
    and: [
      'ALTER TABLE page ADD COLUMN updated_at timestamptz',
      ...trigger('a stamp', 'BEFORE INSERT OR UPDATE', stamp),
      ...trigger('z stamp', 'BEFORE INSERT OR UPDATE', stamp),
    ],
  },
  {
    name: 'AFTER triggers between those of the guard',
    and: [
      'CREATE TABLE log (tag text, url text)',
      ...trigger('a log', 'AFTER INSERT OR UPDATE OR DELETE', log),
      ...trigger('unique_text_page_url_s', 'AFTER INSERT', retitle),
      ...trigger('z log', 'AFTER INSERT OR UPDATE OR DELETE', log),
      ...trigger('z retitle', 'AFTER INSERT', retitle),
    ],
  },
]

const members = ['races', 'promotion', 'statements', 'transactions'].flatMap((group) => interleavings[group] ?? [])

for (const setting of settings) {
  describe(`a user's own ${setting.name} change nothing`, () => {
    for (const interleaving of members) {
      test(interleaving.name, async () => {
        const level = 'READ COMMITTED'
        expect(await stage.play(interleaving, level, setting)).toEqual(expectedPlay(interleaving, level))
      })
    }
  })
}

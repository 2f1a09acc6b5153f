import type { TriggerSet } from '../../src/sql/trigger-set'

/** What the release after this one might make: another kernel beside this one's, other bodies, a later protocol. */
const ofNextRelease = (sql: string): string =>
  sql
    .replaceAll(/\b(unique_text_chain)_v1\b/g, '$1_v2')
    .replaceAll('"protocol":1', '"protocol":2, "serves":1')
    .replaceAll(/\n {2}RETURN (NEW|NULL);\nEND\n/g, '\n  PERFORM 2;\n  RETURN $1;\nEND\n')

/** Puts what this release makes, or what the next one might, where the other stands. The kernels stand side by side. */
export const install = ({ drop, create }: TriggerSet, release: 'this' | 'next'): string[] => [
  ...drop.filter((sql) => sql.startsWith('DROP TRIGGER')),
  ...create.map((sql) => (release === 'next' ? ofNextRelease(sql) : sql)),
]

import type { WantedDeclaration } from '../../src/triggers/attached'

/** What the release after this one might make: another library beside this one's, other bodies, a later protocol. */
const ofNextRelease = (sql: string): string =>
  sql
    .replaceAll('_v1', '_v2')
    .replaceAll("'protocol', 1,", "'protocol', 2, 'serves', 1,")
    .replaceAll('"protocol":1', '"protocol":2, "serves":1')
    .replaceAll(/\n {2}RETURN (NEW|NULL);\nEND\n/g, '\n  PERFORM 2;\n  RETURN $1;\nEND\n')

/** Puts what this release makes, or what the next one might, where the other is. The libraries are side by side. */
export const install = ({ create }: WantedDeclaration, release: 'this' | 'next'): string[] =>
  create.map((sql) => (release === 'next' ? ofNextRelease(sql) : sql))

import type { DataSource, EntityTarget, ObjectLiteral } from 'typeorm'
import { adopt } from '../../src/adopt/adopt'
import { mergeDuplicates, type MergeOptions, type MergeReport } from '../../src/adopt/merge'
import type { AdoptOptions } from '../../src/adopt/options'
import { replacements, type Seams } from '../../src/adopt/session'
import type { AdoptReport } from '../../src/adopt/work'

/** A command that a replacement calls has no replacements itself. */
const outside =
  <Values extends unknown[], T>(replacement: (...values: Values) => T) =>
  (...values: Values): T =>
    replacements.exit(() => replacement(...values))

const commandWith =
  <Options, Report>(
    command: (dataSource: DataSource, entity: EntityTarget<ObjectLiteral>, options: Options) => Promise<Report>,
  ) =>
  async (
    dataSource: DataSource,
    entity: EntityTarget<ObjectLiteral>,
    options: Options,
    { beforeStatement, sleep, random }: Seams,
  ): Promise<Report> => {
    const seams = {
      ...(beforeStatement && { beforeStatement: outside(beforeStatement) }),
      ...(sleep && { sleep: outside(sleep) }),
      ...(random && { random }),
    }
    return await replacements.run(seams, async () => await command(dataSource, entity, options))
  }

/** The commands with replacements for time and chance. */
export const adoptWith = commandWith<AdoptOptions, AdoptReport>(adopt)

export const mergeWith = commandWith<MergeOptions, MergeReport>(mergeDuplicates)

/** Faults that can be put into the guard; the words are those of `test/support/mutations.ts` where it has them too. The
 * last two are of the second line; all others are put in with the second line taken out. */
export const FAULTS = {
  naive: 'read the chain once and take max + 1: no lock, no touch, no promotion',
  noPromotionAfterDelete: 'no promotion after a delete',
  noPromotionAfterMove: 'no promotion after a move',
  noTouchAfterInsert: 'no touch after an insert',
  noTouchAfterUpdate: 'no touch after an update',
  touchOnlyLooks: 'a touch only looks',
  lockWithoutTouch: 'lock without touch (and every delete at number 0 promotes, as if all were flagged)',
  touchSkipsFlagged: 'a touch skips an anchor that is flagged',
  touchWithoutFlag: 'a touch does not set the flag',
  noSecondRead: 'no second read',
  noSecondReadAfterHit: 'no second read after a hit',
  noSecondReadAfterMiss: 'no second read after a miss',
  noLock: 'no lock of the anchor',
  hitWithoutLock: 'no lock for a hit at number 1 and more',
  promotedWithoutFlag: 'a promoted row gets no flag',
  retakenWithoutFlag: 'a row that took number 0 again gets no flag',
  touchWithoutPromotion: 'a touch that finds no anchor does not promote',
  noComparison: 'what took number 0 again is not compared',
  clientClearsFlag: 'a client can clear the flag',
  noPromotionAfterSoftDelete: 'no promotion after a soft delete',
  restoreWithoutPlace: 'a restored row keeps its number',
  noTouchAfterRestore: 'no touch after a restore',
  deletedRowsCount: 'softly deleted rows count as members of their chain',
  flaggedWithoutPlace: 'a flagged row that is sent with number 0 is not placed',
  onlyAnchorCompared: 'only the anchor is compared',
  flaggedAnchorChanges: 'a flagged anchor may change',
} as const

export type Fault = keyof typeof FAULTS
